"""HTTP: parse, call, translate. No rule of the queue or the domain lives here."""

"""The console: pages for the people who run the service, at `/console`.

Like `api`, it parses, calls and shows; no rule lives here, and the domain is handed to it.
"""

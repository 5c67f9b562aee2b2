# Folded at compile time, it would take the machine's memory: it is left for the run.
x = ((b"x" * 4096) * 4096) * (1 << 40)

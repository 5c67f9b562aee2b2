import time

# Uses no CPU time at all; only the limit on wall time ends it.
time.sleep(3600)
print("Hello World!")

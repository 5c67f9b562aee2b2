# Ends at once, and leaves a daemon that holds stdout open.
import os
import time

print("contained", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os._exit(0)

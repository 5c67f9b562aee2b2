# Starts as many processes as it may have; then says whether there was a bound.
import os
import time

born = 0
try:
    while born < 200:
        if os.fork() == 0:
            time.sleep(60)
        born += 1
except BlockingIOError:
    print("contained" if born < 70 else born)

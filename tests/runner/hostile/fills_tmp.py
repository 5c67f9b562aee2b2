# Says what it finds in /tmp, then fills it. Every run must find it empty.
import errno
import os

if os.listdir("/tmp"):
    print("found", os.listdir("/tmp")[:3])
try:
    for number in range(10_000):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 22))
except OSError as error:
    print("contained" if error.errno == errno.ENOSPC else error)

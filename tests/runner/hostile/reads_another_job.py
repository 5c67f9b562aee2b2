# Is told where another job's folder lies, and tries to read, list, change and enter it.
import os
import sys

other = sys.stdin.read().split()[3]
for path in (other, os.path.dirname(other), f"/proc/1/root{other}", f"/proc/self/root{other}"):
    for attempt in (
        os.listdir,
        os.chdir,
        lambda path: open(path + "/src/main.py").read(),
        lambda path: open(path + "/src/main.py", "w"),
        lambda path: os.symlink("x", path + "/out/main"),
        lambda path: os.rename(path + "/src", path + "/gone"),
    ):
        try:
            attempt(path)
            print("got through to", path)
        except OSError:
            pass
print("contained")

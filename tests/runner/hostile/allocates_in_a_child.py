import os

if os.fork() == 0:
    x = b"x" * 200_000_000
    os._exit(0)
os.wait()
print("fine")

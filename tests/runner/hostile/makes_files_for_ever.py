# Each file is empty; what it costs is the kernel's memory.
number = 0
while True:
    try:
        open(f"/tmp/{number}", "w").close()
    except OSError:
        pass
    number += 1

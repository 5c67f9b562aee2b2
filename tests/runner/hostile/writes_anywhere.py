# Tries to leave something behind wherever a later run could find it.
import os

for folder in (
    "/", "/judge", "/judge/src", "/judge/out", "/dev", "/dev/shm", "/usr", "/usr/bin", "/etc",
    "/proc", "/proc/sys/kernel",
):
    try:
        open(f"{folder}/hostile", "w").write("x")
        print("wrote into", folder)
    except OSError:
        pass
for path in (
    "/judge/src/main.py", "/usr/bin/python3", "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger", "/proc/1/oom_score_adj",
    "/proc/self/oom_score_adj", "/proc/sys/vm/drop_caches",
):
    try:
        with open(path, "a") as file:
            file.write("-1")
        print("wrote to", path)
    except OSError:
        pass
print("contained")

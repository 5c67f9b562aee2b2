# Looks for the runner's token: in the environment, in other processes, in what is inherited.
import glob
import os
import sys

secret = sys.stdin.read().split()[0][::-1].encode()
surplus = set(os.environ) - {"PATH", "LANG", "HOME", "PWD", "LC_CTYPE"}
if surplus:
    print("the environment holds", sorted(surplus))
if sorted(os.listdir("/proc/self/fd")) != ["0", "1", "2", "3"]:  # 3 is the listing itself
    print("holds descriptors", os.listdir("/proc/self/fd"))
for pattern in ("environ", "cmdline", "mountinfo", "cgroup"):
    for path in glob.glob(f"/proc/[0-9]*/{pattern}"):
        try:
            content = open(path, "rb").read()
        except OSError:
            continue
        if secret in content or b"RUNNER_" in content:
            print("found the secret in", path)
print("contained")

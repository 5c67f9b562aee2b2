# Opens what the host has and a program must not see.
import os

for path in (
    "/etc/shadow", "/etc/passwd", "/etc/hosts", "/root", "/home", "/srv", "/var", "/run", "/sys",
    "/opt", "/mnt", "/boot", "/usr/../root", "/proc/1/root/etc/shadow", "/proc/self/root/root",
    "/proc/1/cwd/root", "/judge/src/../../etc/shadow", "/dev/sda", "/dev/vda", "/dev/kmsg",
    "/dev/mem", "/dev/kvm", "/dev/fuse", "/judge/data.zip",
):
    if os.path.exists(path):
        print("there is", path)
for path in ("/proc/kcore", "/proc/kmsg", "/proc/1/mem", "/proc/kallsyms"):
    try:
        content = open(path, "rb").read(4096)
    except OSError:
        continue
    # kallsyms shows addresses of zero to those who may not know them.
    if content and not (path.endswith("kallsyms") and content.startswith(b"0000000000000000")):
        print("read", path)
print("contained")

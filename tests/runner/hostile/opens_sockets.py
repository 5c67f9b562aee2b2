# Calls out: to the API on loopback, to the network, to the host by every other family.
import socket
import sys

_, port, name, _ = sys.stdin.read().split()
targets = [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(port))),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", int(port))),
    (socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", int(port))),
    (socket.AF_INET, socket.SOCK_STREAM, ("8.8.8.8", 53)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    (socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0)),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name),
    (socket.AF_UNIX, socket.SOCK_STREAM, "/run/docker.sock"),
    (socket.AF_UNIX, socket.SOCK_STREAM, "/dev/log"),
]
for family, kind, address in targets:
    try:
        with socket.socket(family, kind) as client:
            client.settimeout(1)
            client.connect(address)
            print("connected to", address)
    except OSError:
        pass
print("contained")

import sys

for line in sys.stdin:
    a, b = map(int, line.split())
    for step in range(abs(a - b)):
        print("x" * 65536)

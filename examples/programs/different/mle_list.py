import sys

# Writes the distance down as a row of bytes, and never lets go of one.
rows = []
for line in sys.stdin:
    a, b = map(int, line.split())
    distance = abs(a - b)
    while distance > 0:
        step = min(distance, 1 << 24)
        rows.append(bytearray(b"x") * step)
        distance -= step
    print(sum(map(len, rows)))

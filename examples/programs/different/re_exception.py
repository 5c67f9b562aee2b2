import sys

for line in sys.stdin:
    a, b, c = map(int, line.split())  # there is no third number
    print(abs(a - b))

import sys

words = sys.stdin.read().split()[1:]
print("\n".join(words[::2]))

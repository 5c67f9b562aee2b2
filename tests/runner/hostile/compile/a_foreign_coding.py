# coding: no-such-coding
print("contained")

import os

try:
    while True:
        os.mkdir("d")
        os.chdir("d")
except OSError:
    print("contained")

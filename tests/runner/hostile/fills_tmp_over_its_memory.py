open("/tmp/a", "wb").write(bytes(60 << 20))
print("written")

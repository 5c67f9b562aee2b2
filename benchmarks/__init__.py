"""Measurements of the whole service beside floors and peers. `make bench` prints one table."""

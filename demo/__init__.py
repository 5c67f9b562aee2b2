"""`make demo`: the whole service at work on real programs, and its results checked."""

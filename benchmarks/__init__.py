"""Measurements: ours beside their floor, in one run."""

"""Data of an operator: containers, checks, splits, shards, reading and writing. NumPy only."""

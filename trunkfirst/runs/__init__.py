"""Runs: configurations carried out in folders, alone, compared with each other, or in sweeps."""

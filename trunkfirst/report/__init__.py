"""Figures and one-file HTML pages of runs, comparisons, sweeps and studies. Reads files only."""

"""Figures and the one-file HTML report of a run or a comparison. Reads files only."""

from ._report import write_report

__all__ = ["write_report"]

"""Choices made on validation samples alone."""

from ._encoding import choose_encoding, encoding_candidates
from ._trial import Candidate, Choice, Trial, aligned_trial, best_of, choose

__all__ = [
    "Candidate",
    "Choice",
    "Trial",
    "aligned_trial",
    "best_of",
    "choose",
    "choose_encoding",
    "encoding_candidates",
]

"""Malicious files: each is a function that writes one, and the reader that must refuse it."""

from . import _arrays, _containers, _models, _texts  # they fill the table
from ._cases import CASES, Case, canary_of, marker_of
from ._models import good_model

__all__ = ["CASES", "Case", "canary_of", "good_model", "marker_of"]

del _arrays, _containers, _models, _texts

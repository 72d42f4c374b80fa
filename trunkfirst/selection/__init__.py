"""What `auto` means: choices made on validation samples alone."""

from ._encoding import Choice, choose_encoding, encoding_candidates

__all__ = ["Choice", "choose_encoding", "encoding_candidates"]

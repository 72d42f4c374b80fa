"""A small file that claims to hold much is refused before memory is asked for."""

from pathlib import Path

from ..errors import CorruptFileError

# Below the first nothing is asked; deflate itself shrinks by at most about 1,000.
_HARMLESS_BYTES = 2**30
_LARGEST_RATIO = 200


def check_expansion(path: Path | str, name: str, claimed: int, stored: int) -> None:
    """`claimed` bytes in memory from `stored` bytes on disk must be believable."""
    if claimed > _HARMLESS_BYTES and claimed > _LARGEST_RATIO * max(stored, 1):
        raise CorruptFileError(
            f"{path}: {name} claims {claimed / 2**30:.1f} GiB but takes {stored:,} bytes in the file; refused"
        )

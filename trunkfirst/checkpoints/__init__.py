"""Long computations that can be broken off at any moment and taken up again, to the same bits."""

from ._journal import (
    Place,
    Snapshot,
    begin_step,
    is_keeping_checkpoints,
    journal_files,
    keep_checkpoints,
    remember,
    work_folder,
)
from ._lock import lock_folder

__all__ = [
    "Place",
    "Snapshot",
    "begin_step",
    "is_keeping_checkpoints",
    "journal_files",
    "keep_checkpoints",
    "lock_folder",
    "remember",
    "work_folder",
]

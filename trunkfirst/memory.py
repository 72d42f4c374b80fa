"""Memory that a run will ask for, compared beforehand with what is free: later the system would just end it."""

import contextlib
import itertools
from collections.abc import Generator, Sequence
from pathlib import Path

from .errors import MemoryNeedError

# Copies of the data that a run holds at its peak (benchmarks/peak_memory.py): as read, the part for training, with
# weights, factorised.
_COPIES = 7
_LIBRARIES = 2**29
_KERNEL_COPIES, _MAX_CENTRES = 4, 4000
_FEWEST_SAMPLES = 20
# Weights, the best ones, their gradient, and what a minimiser keeps at least.
_NETWORK_COPIES = 4
_GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def memory_in_words() -> Generator[None]:
    """A `MemoryNeedError` where XLA finds less memory than was estimated."""
    try:
        yield
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = next(iter(str(error).splitlines()))
        message = f"memory ran out while training ({reason[:200]}); use smaller widths, fewer samples or batches"
        raise MemoryNeedError(message) from error


def check_memory(
    samples: int, numbers: int, *, is_loaded: bool = False, copies: int = _COPIES, beside: int = 0
) -> None:
    """Raise `MemoryNeedError` where `samples` of `numbers` floats each do not fit into the free memory.

    `copies` of them are made at the same time; `beside` bytes are needed besides.
    """
    free = free_memory()
    if free is None:
        return
    data = 8 * samples * numbers * (copies - is_loaded)
    rest = _LIBRARIES + beside + 8 * _KERNEL_COPIES * min(samples, _MAX_CENTRES) ** 2
    if data + rest <= free:
        return
    fits = int(samples * (free - rest) / data)
    advice = (
        f"data.samples={fits} would fit"
        if fits >= _FEWEST_SAMPLES
        else "close other programs, or use another machine"
    )
    raise MemoryNeedError(
        f"{samples:,} samples of {numbers:,} numbers need about {(data + rest) / 2**30:.1f} GiB of memory, and "
        f"{free / 2**30:.1f} GiB are free; {advice}"
    )


def check_network(
    architecture: Sequence[int], rows: int, *, bytes_per_number: int = 8, is_last_solved: bool = False
) -> None:
    """Raise `MemoryNeedError` where a network of these widths cannot be trained on `rows` in the free memory.

    `is_last_solved`: the last layer is solved for, with a square matrix of the last hidden width.
    """
    free = free_memory()
    weights = sum(before * after for before, after in itertools.pairwise(architecture))
    squares = 2 * architecture[-2] ** 2 if is_last_solved else 0
    need = bytes_per_number * (_NETWORK_COPIES * weights + rows * max(architecture) + squares)
    if free is None or need <= free:
        return
    widths = ", ".join(f"{width:,}" for width in architecture)
    raise MemoryNeedError(
        f"a network with the widths {widths} has {weights:,} weights and needs about {need / 2**30:,.1f} GiB of "
        f"memory, and {free / 2**30:.1f} GiB are free; use smaller widths (hidden, width, channels)"
    )


def check_file(path: Path, *, is_all: bool) -> None:
    """Refuse a file that will not fit into the free memory, before it is read; `is_all`: to train on all of it."""
    free = free_memory()
    if free is None or not path.is_file():
        return
    size = path.stat().st_size
    need = size * (_COPIES if is_all else 1) + _LIBRARIES
    if need > free:
        raise MemoryNeedError(
            f"{path} has {size / 2**30:.1f} GiB; that needs about {need / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} GiB are free. Cut it into shards, which need not fit: trunkfirst data convert "
            f"{path} --out FOLDER; then give --data FOLDER"
        )


def free_memory() -> int | None:
    """Free bytes on this machine and in this container; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int((_GROUPS / limit).read_text()) - int((_GROUPS / used).read_text()))
        except (OSError, ValueError):  # no such group, or no limit
            continue
    return max(free, 0)

"""Memory that a run will ask for, compared beforehand with what is free: later the system would just end it."""

from pathlib import Path

from ..errors import MemoryNeedError

# Copies of the data that a run holds at its peak (benchmarks/peak_memory.py): as read, the part for training, with
# weights, factorised.
_COPIES = 7
_LIBRARIES = 2**29
_KERNEL_COPIES, _MOST_CENTRES = 4, 4000
_FEWEST_SAMPLES = 20
_GROUPS = Path("/sys/fs/cgroup")


def check_memory(samples: int, numbers: int, *, is_loaded: bool = False) -> None:
    """Refuse so many `samples`, of so many `numbers` each, where they will not fit into the free memory."""
    free = free_memory()
    if free is None:
        return
    data = 8 * samples * numbers * (_COPIES - is_loaded)
    rest = _LIBRARIES + 8 * _KERNEL_COPIES * min(samples, _MOST_CENTRES) ** 2
    if data + rest <= free:
        return
    fits = int(samples * (free - rest) / data)
    advice = (
        f"data.samples={fits} would fit"
        if fits >= _FEWEST_SAMPLES
        else "end other programs, or take another machine"
    )
    raise MemoryNeedError(
        f"{samples:,} samples of {numbers:,} numbers need about {(data + rest) / 2**30:.1f} GiB of memory, and "
        f"{free / 2**30:.1f} GiB are free; {advice}"
    )


def free_memory() -> int | None:
    """Bytes that can still be asked for, on this machine and in this container; None where nobody says."""
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

"""The cache folder, and in it the programs that JAX has compiled, for the next run."""

import contextlib
import hashlib
import os
import platform
import stat
import warnings
from collections.abc import Generator
from pathlib import Path

_PROGRAMS = "programs"
_MAX_BYTES = 2**29
_CPU_INFO = Path("/proc/cpuinfo")
# Flags on x86, Features on ARM: with the model they decide which instructions are generated.
_CPU_FIELDS = ("model name", "flags", "Features", "CPU implementer", "CPU part")


def cache_folder(cache: Path | str | None = None) -> Path:
    """Return the cache folder: `cache`, else $TRUNKFIRST_CACHE, else trunkfirst in the user's cache folder."""
    chosen = cache or os.environ.get("TRUNKFIRST_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "trunkfirst"


@contextlib.contextmanager
def cached_programs() -> Generator[None]:
    """Read and store compiled programs in `program_folder()` inside this block, with JAX's persistent cache.

    A cache that the user has configured is used instead. An entry that cannot be read is compiled again.
    """
    folder = program_folder()
    if folder is None or not _is_private(folder):
        yield
        return
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    _remove_oldest(folder.parent)
    options = {"jax_compilation_cache_dir": str(folder), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
            yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        reset_cache()


def program_folder() -> Path | None:
    """The folder of compiled programs for this machine, JAX and its flags; None if ours is not used.

    That is so with TRUNKFIRST_PROGRAM_CACHE=off, with a cache of the user's own (`jax_compilation_cache_dir`),
    with several processes, and where the features of the processor are not known.
    """
    if os.environ.get("TRUNKFIRST_PROGRAM_CACHE") == "off" or not _CPU_INFO.exists():
        return None
    import jax

    enabled, own = jax.config.jax_enable_compilation_cache, jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if not enabled or own or jax.distributed.is_initialized():
        return None
    return cache_folder().absolute() / _PROGRAMS / _machine()


def stored_programs() -> list[Path]:
    """The files of compiled programs of all machines and versions."""
    return [path for path in (cache_folder() / _PROGRAMS).glob("*/*") if path.is_file()]


def clear_programs() -> int:
    """Delete all compiled programs and return their number."""
    found = stored_programs()
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _machine() -> str:
    """A digest of what compiled programs depend on besides their source, which JAX takes care of."""
    import jax
    from jaxlib import version

    # The number of threads decides how loops are divided.
    threads = os.environ.get("NPROC"), len(os.sched_getaffinity(0))
    flags = os.environ.get("XLA_FLAGS"), platform.machine(), os.getuid()
    text = repr((_processor(), jax.__version__, version.__version__, flags, threads))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _processor() -> list[str]:
    lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    return sorted({line for line in lines if line.partition(":")[0].strip() in _CPU_FIELDS})


def _is_private(folder: Path) -> bool:
    """Whether the folder exists or can be made, and no other user can write to it: its programs are run."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.getuid() and not is_shared and os.access(folder, os.W_OK)


def _remove_oldest(folder: Path) -> None:
    """Keep the newest programs, of all versions of JAX, up to `_MAX_BYTES`."""
    total = 0
    with contextlib.suppress(OSError):  # another process removes the same ones
        files = [(path.stat(), path) for path in folder.glob("*/*")]
        for status, path in sorted(files, key=lambda each: -each[0].st_mtime):
            total += status.st_size
            if total > _MAX_BYTES:
                path.unlink()

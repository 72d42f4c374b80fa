"""`trunkfirst data check` and `data convert`: data that people bring."""

from pathlib import Path

import numpy as np

from ..data import AnyData, ShardedData, check_data, read_data, shard_data, write_data
from ..errors import OutputExistsError, UsageError
from ._console import print_json, say


def check_command(file: Path, *, keys: list[str], json: bool, quiet: bool) -> int:
    """Say what is in a file of data and what looks suspicious; what is wrong raises."""
    found = check_data(file, keys=parse_keys(keys))
    if json:
        print_json({"file": str(file), **found.numbers})
        return 0
    for sentence in (f"{file}:", *found.sentences):
        say(sentence, quiet=quiet)
    for sentence in found.suspicious:
        say(f"suspicious: {sentence}", quiet=quiet)
    if not found.suspicious:
        say("nothing looks suspicious", quiet=quiet)
    return 0


def convert_command(
    source: Path,
    target: Path | None,
    *,
    out: Path | None,
    samples_per_shard: int | None,
    keys: list[str],
    json: bool,
    quiet: bool,
) -> int:
    """Write data in another format, under the usual names, or in shards."""
    if (target is None) == (out is None):
        raise UsageError("give OUT, a file or a folder of .csv files, or --out FOLDER for shards: one of them")
    if samples_per_shard is not None and out is None:
        raise UsageError("--samples-per-shard is for a folder of shards: give --out FOLDER instead of OUT")
    if target is not None:
        _check_free(target)
        data = in_memory(read_data(source, keys=parse_keys(keys)))
        write_data(data, target)
    else:
        assert out is not None
        data, target = shard_data(source, out, keys=parse_keys(keys), samples_per_shard=samples_per_shard), out
    found = {"file": str(target), "samples": data.samples, "points": data.points.shape[-2]}
    if isinstance(data, ShardedData):
        found["shards"] = len(data.counts)
    if json:
        print_json(found)
    else:
        words = f" in {found['shards']:,} shards" if "shards" in found else ""
        say(f"{target}: {data.samples:,} samples at {found['points']:,} points{words}", quiet=quiet)
    return 0


def in_memory(data: AnyData | ShardedData) -> AnyData:
    """All samples at once, where memory allows."""
    if not isinstance(data, ShardedData):
        return data
    from ..runs import check_memory

    check_memory(data.samples, data.numbers, copies=2)
    return data.take(np.arange(data.samples))


def _check_free(target: Path) -> None:
    if target.exists():
        raise OutputExistsError(f"{target} is there already; remove it first or choose another name")


def parse_keys(pairs: list[str]) -> dict[str, str]:
    """`["inputs=a", "outputs=u"]` as a dictionary."""
    keys: dict[str, str] = {}
    for pair in pairs:
        key, separator, name = pair.partition("=")
        if not (key and separator and name) or key in keys:
            raise UsageError(f"--key {pair} is not KEY=NAME, or the key is given twice; write e.g. --key inputs=a")
        keys[key] = name
    return keys

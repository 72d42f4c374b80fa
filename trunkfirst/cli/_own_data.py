"""`trunkfirst data check` and `data convert`: data that people bring."""

from pathlib import Path

from ..data import check_data, read_data, write_data
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


def convert_command(source: Path, target: Path, *, keys: list[str], json: bool, quiet: bool) -> int:
    """Write data in another format, or under the usual names."""
    if target.exists():
        raise OutputExistsError(f"{target} is there already; remove it first or choose another name")
    data = read_data(source, keys=parse_keys(keys))
    write_data(data, target)
    if json:
        print_json({"file": str(target), "samples": data.samples, "points": data.outputs.shape[1]})
    else:
        say(f"{target}: {data.samples:,} samples at {data.outputs.shape[1]:,} points", quiet=quiet)
    return 0


def parse_keys(pairs: list[str]) -> dict[str, str]:
    """`["inputs=a", "outputs=u"]` as a dictionary."""
    keys: dict[str, str] = {}
    for pair in pairs:
        key, separator, name = pair.partition("=")
        if not (key and separator and name) or key in keys:
            raise UsageError(f"--key {pair} is not KEY=NAME, or the key is given twice; write e.g. --key inputs=a")
        keys[key] = name
    return keys

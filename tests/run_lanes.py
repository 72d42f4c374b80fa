"""Run the tests with other versions of Python and of the dependencies: `make test-lanes`.

One lane with Python 3.12 and the pinned dependencies, one with the lowest versions that pyproject.toml allows, one
with the newest. Each has a virtual environment of its own under `.lanes`. `--only NAME` runs one of them; other
arguments are passed on to pytest.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LANES = ROOT / ".lanes"


def main(arguments: Sequence[str]) -> int:
    """The number of lanes that failed."""
    lanes = {
        "python3.12": ("python3.12", ["--require-hashes", "-r", "requirements.lock"]),
        "oldest": ("python3.11", oldest_requirements()),
        "newest": ("python3.13", ["--upgrade", *requirements()]),
    }
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", choices=lanes)
    options, others = parser.parse_known_args(arguments)
    wanted = [options.only] if options.only else list(lanes)
    return sum(not passes(name, *lanes[name], others, is_needed=bool(options.only)) for name in wanted)


def passes(
    name: str, python: str, packages: Sequence[str], arguments: Sequence[str], *, is_needed: bool = False
) -> bool:
    """Whether the tests pass in this lane, or it cannot be run here and is not needed."""
    if not runs(python):
        print(f"{name}: skipped, there is no {python}", flush=True)
        return not is_needed
    own = str(LANES / name / "bin" / "python")
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    test = [own, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *arguments]
    commands = [[*pip, *packages], [*pip, "--no-deps", "--no-build-isolation", "-e", "."], test]
    if not Path(own).exists():
        commands.insert(0, [python, "-m", "venv", str(LANES / name)])
    print(f"{name}: {LANES / name}", flush=True)
    return all(subprocess.run(command, cwd=ROOT).returncode == 0 for command in commands)


def runs(python: str) -> bool:
    """Whether this interpreter is there; pyenv puts names on the path that may lead nowhere."""
    return (
        shutil.which(python) is not None
        and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    )


def oldest_requirements() -> list[str]:
    """The dependencies at their lower bounds, those of the extras too, and what the tests need beside them."""
    own = own_requirements()
    names = {re.split(r"[=<>]", line)[0] for line in own}
    others = [line for line in requirements() if re.split(r"[=<>]", line)[0] not in names]
    return [re.sub(r">=([^,]+).*", r"==\1", line) for line in own] + others


def own_requirements() -> list[str]:
    """The dependencies and those of the extras, as in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(line for name in extras if name != "bench" for line in extras[name])]


def requirements() -> list[str]:
    """All of them, with what the tests need beside."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    return [*own_requirements(), *groups["build"], *groups["dev"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

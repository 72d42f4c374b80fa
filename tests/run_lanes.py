"""Run the tests with other versions of Python and of the dependencies: `make test-lanes`.

One lane with Python 3.12 and the pinned dependencies, one with the lowest versions that pyproject.toml allows.
Each has a virtual environment of its own under `.lanes`. Arguments are passed on to pytest.
"""

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
    lanes = [
        ("python3.12", "python3.12", ["--require-hashes", "-r", "requirements.lock"]),
        ("oldest", "python3.11", oldest_requirements()),
    ]
    return sum(not passes(name, python, packages, arguments) for name, python, packages in lanes)


def passes(name: str, python: str, packages: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether the tests pass in this lane, or it cannot be run here."""
    if not runs(python):
        print(f"{name}: skipped, there is no {python}", flush=True)
        return True
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
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = tables["project"]["optional-dependencies"]
    own = [
        *tables["project"]["dependencies"],
        *(line for name in extras if name != "bench" for line in extras[name]),
    ]
    lowest = [re.sub(r">=([^,]+).*", r"==\1", line) for line in own]
    names = {re.split(r"[=<>]", line)[0] for line in own}
    groups = [*tables["dependency-groups"]["build"], *tables["dependency-groups"]["dev"]]
    return lowest + [line for line in groups if re.split(r"[=<>]", line)[0] not in names]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The exceptions of this library and their exit codes.

```
TrunkfirstError              1   base; the exit code of the command line
├── UsageError               2   a command with arguments that do not fit
├── UnknownNameError         3   no such problem, method, activation ...
├── SettingError             4   a setting that does not exist or is not used
├── ValueRangeError          5   a setting or argument outside its range
├── DataError                6   arrays of the wrong shape, type or value
│   └── WidthError           7   more trunk functions than output points
├── OutputExistsError        8   the output folder is not empty
├── OutputNotWritableError   9   the output folder cannot be written
├── CorruptFileError        10   a file is missing, damaged or of another kind
│   └── UnsafeFileError     15   a file that could run code or read other files
├── SolveError              11   a finite-element solve did not converge
├── DivergedError           12   training produced a number that is not finite
├── PrecisionError          13   double precision is needed but switched off
├── PredictOnlyError        14   an operator that can only predict
├── MissingExtraError       16   an optional package is not installed
├── FolderInUseError        17   another process uses the folder
├── MemoryNeedError         18   more memory is needed than is available
├── LostProcessError        19   one of several processes died, hangs or differs
├── ClusterError            20   a cluster does not answer or cannot do the work
└── FailedRunsError         21   some runs of a sweep failed
```
130 follows an interrupt (Ctrl-C) and 143 SIGTERM, as in shells.
"""

import difflib
import importlib
import unicodedata
from collections.abc import Iterable
from typing import Any

# Unicode's categories of control and formatting characters, and of separators of lines and paragraphs.
_CONTROLS = ("Cc", "Cf", "Zl", "Zp", "Cs")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'? " for the closest of the known names, or nothing."""
    names = {each.casefold(): each for each in known}
    return "".join(
        f"did you mean {names[close]!r}? " for close in difflib.get_close_matches(name.casefold(), names, 1)
    )


def without_controls(text: str) -> str:
    """The text without control and formatting characters, such as terminal escapes and changes of direction."""
    return "".join(letter for letter in text if unicodedata.category(letter) not in _CONTROLS)


class TrunkfirstError(Exception):
    """Base class; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(TrunkfirstError, ValueError):
    exit_code = 2


class UnknownNameError(TrunkfirstError, ValueError):
    exit_code = 3

    def __init__(self, kind: str, name: str, known: tuple[str, ...]):
        hint = did_you_mean(name, known)
        super().__init__(f"there is no {kind} {name!r}; {hint}choose one of: {', '.join(known)}")


class SettingError(TrunkfirstError, ValueError):
    exit_code = 4


class ValueRangeError(TrunkfirstError, ValueError):
    exit_code = 5


class DataError(TrunkfirstError, ValueError):
    exit_code = 6


class WidthError(DataError):
    exit_code = 7


class OutputExistsError(TrunkfirstError, OSError):
    exit_code = 8


class OutputNotWritableError(TrunkfirstError, OSError):
    exit_code = 9


class CorruptFileError(TrunkfirstError, OSError):
    exit_code = 10


class UnsafeFileError(CorruptFileError):
    exit_code = 15


class SolveError(TrunkfirstError, ArithmeticError):
    exit_code = 11


class DivergedError(TrunkfirstError, ArithmeticError):
    exit_code = 12


class PrecisionError(TrunkfirstError, TypeError):
    exit_code = 13


class PredictOnlyError(TrunkfirstError, TypeError):
    exit_code = 14


class MissingExtraError(TrunkfirstError, ImportError):
    exit_code = 16

    def __init__(self, what: str, package: str, extra: str):
        super().__init__(f"{what} needs {package}; install it with: pip install 'trunkfirst[{extra}]'")


class FolderInUseError(TrunkfirstError, OSError):
    exit_code = 17


class MemoryNeedError(TrunkfirstError, MemoryError):
    exit_code = 18


class LostProcessError(TrunkfirstError, ConnectionError):
    exit_code = 19


class ClusterError(TrunkfirstError, OSError):
    exit_code = 20


class FailedRunsError(TrunkfirstError, ArithmeticError):
    exit_code = 21


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C but with exit code 143."""


def import_extra(what: str, package: str, extra: str) -> Any:
    """An optional package, imported; a `MissingExtraError` that says what needs it if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(what, package, extra) from error

"""Everything this library raises on purpose.

```
TrunkfirstError              1   base; the exit code of the command line
├── UsageError               2   a command called in a way it cannot serve
├── UnknownNameError         3   no such problem, method, activation ...
├── SettingError             4   a setting that does not exist or is not used
├── ValueRangeError          5   a setting or argument outside its range
├── DataError                6   arrays of the wrong shape, type or value
│   └── WidthError           7   more trunk functions than output points
├── OutputExistsError        8   the output folder holds something already
├── OutputNotWritableError   9   the output folder cannot be written
├── CorruptFileError        10   a file is missing, damaged or not what it says
│   └── UnsafeFileError     15   a file that could run code or reach into other files
├── SolveError              11   a finite-element solve did not converge
├── DivergedError           12   training met a number that is not finite
├── PrecisionError          13   double precision is needed and switched off
├── PredictOnlyError        14   an operator that predicts only was to do more
├── MissingExtraError       16   an optional package is not installed
├── FolderInUseError        17   another process works in the folder
├── MemoryNeedError         18   more memory would be needed than there is
├── LostProcessError        19   one of several processes died, is stuck, or differs
├── ClusterError            20   a cluster does not answer, or cannot do the work
└── FailedRunsError         21   some runs of a sweep failed
```
130 is left for an interrupt (Ctrl-C) and 143 for SIGTERM, as shells have it.
"""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'? " for the closest of the known names, or nothing."""
    return "".join(f"did you mean {close!r}? " for close in difflib.get_close_matches(name, list(known), 1))


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
    """SIGTERM, which asks a program to end as Ctrl-C does; the exit code is 143, as shells have it."""

"""The tree of exceptions: one base, one exit code each."""

import inspect

import pytest

from trunkfirst import errors
from trunkfirst.errors import TrunkfirstError, UnknownNameError

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, TrunkfirstError) and kind is not TrunkfirstError
]


def test_exit_codes_are_distinct_and_leave_the_reserved_ones():
    codes = [kind.exit_code for kind in CLASSES]
    assert len(set(codes)) == len(codes)
    assert not {0, 1, 130} & set(codes)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_tree_at_the_top_tells_the_code(kind: type[TrunkfirstError]):
    (line,) = (line for line in (errors.__doc__ or "").splitlines() if f" {kind.__name__} " in line)
    assert int(line.split(kind.__name__)[1].split()[0]) == kind.exit_code


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_is_also_a_common_exception(kind: type[TrunkfirstError]):
    assert issubclass(kind, (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError))


def test_an_unknown_name_lists_the_known():
    with pytest.raises(UnknownNameError, match="there is no problem 'x'; choose one of: a, b"):
        raise UnknownNameError("problem", "x", ("a", "b"))


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(UnknownNameError, match=r"'tahn'; did you mean 'tanh'\? choose one of: relu, tanh"):
        raise UnknownNameError("activation", "tahn", ("relu", "tanh"))

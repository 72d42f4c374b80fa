"""The scikit-learn face of the library. Scikit-learn is an extra: it is imported when the class is first used."""

from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from ._two_step_deeponet import TwoStepDeepONet

__all__ = ["TwoStepDeepONet"]


class _WithoutSklearn:
    """Stands for the estimator where scikit-learn is missing: it can be imported, but not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise MissingExtraError("TwoStepDeepONet", "scikit-learn", "sklearn")


def __getattr__(name: str) -> Any:
    if name != "TwoStepDeepONet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from ._two_step_deeponet import TwoStepDeepONet
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklearn":
            raise
        return _WithoutSklearn
    return TwoStepDeepONet

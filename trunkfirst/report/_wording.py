"""What a problem's quantities are called in titles, axes and captions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..data import OperatorData


@dataclass(frozen=True)
class Wording:
    """Names for one problem: what goes in, what comes out, and what the labels are."""

    title: str
    task: str
    output: str = "output"
    unit: str = "in the data's units"
    input: str = "input"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    coordinates: tuple[str, str] = ("x (dimensionless)", "y (dimensionless)")

    def label(self, name: str) -> str:
        """Axis label of the number that names a sample."""
        return self.labels.get(name, name)


_PRESSURE = "pressure p"
_PLAIN = "dimensionless"
WORDINGS = {
    "nonlinear-conductivity": Wording(
        title="Nonlinear conductivity",
        task="from the constant conductivity factor β of a porous square to the pressure inside it",
        output=_PRESSURE,
        unit=_PLAIN,
        input="conductivity factor β",
        labels={"beta": "conductivity factor β (dimensionless)"},
    ),
    "discontinuous-conductivity": Wording(
        title="Discontinuous conductivity",
        task="from the pressure in a porous square back to its conductivity, which jumps to β inside a disk",
        output="conductivity κ",
        unit=_PLAIN,
        input=_PRESSURE,
        labels={"beta": "conductivity of the disk β (dimensionless)"},
    ),
    "multiple-inputs": Wording(
        title="Multiple inputs",
        task="from source f, conductivity factor κ and boundary value g to the pressure in a porous square",
        output=_PRESSURE,
        unit=_PLAIN,
        input="source, conductivity factor and boundary value",
        labels={
            "f": "source f (dimensionless)",
            "kappa": "conductivity factor κ (dimensionless)",
            "g": "boundary value g (dimensionless)",
        },
    ),
}


def wording_for(problem: str, data: OperatorData | None) -> Wording:
    """Wording of a known problem, or one put together from the names in `data`."""
    if problem in WORDINGS:
        return WORDINGS[problem]
    wording = Wording(title=problem, task="from the inputs to the outputs of your data")
    if data is None:
        return wording
    axes = [_with_unit(name, data) for name in (*data.coordinate_names, "", "")]
    unit = data.units.get(data.output_name) or wording.unit
    labels = {name: _with_unit(name, data) for name in data.labels}
    return replace(wording, output=data.output_name, unit=unit, labels=labels, coordinates=(axes[0], axes[1]))


def _with_unit(name: str, data: OperatorData) -> str:
    return f"{name} ({data.units[name]})" if name in data.units else name

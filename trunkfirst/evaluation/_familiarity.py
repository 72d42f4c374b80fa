"""Whether a new input resembles the inputs of training: an operator knows nothing of the others."""

import dataclasses as dc
import functools as ft

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from ..linear import one_blas_thread

_MOST_COORDINATES, _MOST_SEEN = 8, 2000
# How far beyond the training inputs is still called the same: a tenth of their range, half of their distances.
_MARGIN, _SLACK = 0.1, 1.5


@dc.dataclass(frozen=True, eq=False)
class Familiarity:
    """Training inputs in a few principal coordinates, each with deviation 1."""

    centre: Float[np.ndarray, " sensors"]
    matrix: Float[np.ndarray, "sensors coordinates"]
    seen: Float[np.ndarray, "rows coordinates"]
    distance: float
    """The largest distance from one training input to the next."""
    remainder: float
    """The largest length that the coordinates leave out of a training input."""

    def is_strange(self, inputs: Float[np.ndarray, "samples sensors"]) -> Bool[np.ndarray, " samples"]:
        """True for inputs outside the range of training, far from all of them, or of another shape."""
        coordinates = (inputs - self.centre) @ self.matrix
        low, high = self.seen.min(axis=0), self.seen.max(axis=0)
        margin = _MARGIN * (high - low) + 1e-12
        is_outside = ((coordinates < low - margin) | (coordinates > high + margin)).any(axis=1)
        distances, _ = self._tree.query(coordinates)
        is_far = np.asarray(distances) > _SLACK * self.distance + 1e-12
        return is_outside | is_far | (self.left_out(inputs) > _SLACK * self.remainder + 1e-9)

    def left_out(self, inputs: Float[np.ndarray, "samples sensors"]) -> Float[np.ndarray, " samples"]:
        """The length that the coordinates leave out of each input."""
        centred = inputs - self.centre
        return np.linalg.norm(centred - centred @ self.matrix @ self._back, axis=1)

    @ft.cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.seen)

    @ft.cached_property
    def _back(self) -> Float[np.ndarray, "coordinates sensors"]:
        return np.linalg.pinv(self.matrix)

    def arrays(self) -> dict[str, np.ndarray]:
        """As named arrays, for a file."""
        return {f"familiarity.{field.name}": np.asarray(getattr(self, field.name)) for field in dc.fields(self)}


def familiarity_from(arrays: dict[str, np.ndarray]) -> Familiarity | None:
    """The way back from a file; None where it holds none."""
    prefix = "familiarity."
    found = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
    if not found:
        return None
    return Familiarity(
        found["centre"], found["matrix"], found["seen"], float(found["distance"]), float(found["remainder"])
    )


def learn_familiarity(inputs: Float[np.ndarray, "samples sensors"]) -> Familiarity:
    """What the training inputs look like; of many, evenly chosen ones are remembered."""
    centre = inputs.mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd(inputs - centre, full_matrices=False)
    count = max(1, min(_MOST_COORDINATES, int((sizes > 1e-6 * sizes[0]).sum())))
    deviations = np.where(sizes[:count] > 0, sizes[:count], 1.0) / np.sqrt(len(inputs))
    matrix = modes[:count].T / deviations
    rows = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), _MOST_SEEN)).astype(int))
    seen = (inputs[rows] - centre) @ matrix
    distances = np.asarray(KDTree(seen).query(seen, k=min(2, len(seen)))[0]).reshape(len(seen), -1)
    bare = Familiarity(centre, matrix, seen, float(distances[:, -1].max()), 0.0)
    return dc.replace(bare, remainder=float(bare.left_out(inputs).max()))

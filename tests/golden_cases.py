"""Small problems with stored arrays, for golden results.

This is the only module of the golden tests that names records of the package: when those change, change it here,
and compare with the stored numbers. `noise` perturbs every stored number relatively; by how much a result then
changes is its condition number.
"""

import functools as ft
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import trunkfirst
from trunkfirst.encode import encode
from trunkfirst.fields import Searched, hidden_layers
from trunkfirst.fitting import fit_method
from trunkfirst.losses import BilinearProblem, BranchCoefficients, FreeCoefficients, HiddenPair, make_loss
from trunkfirst.minimisers.separable import SeparableProblem
from trunkfirst.networks.branches import LayerFeatures
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.regressors.network import HiddenFeatures, RegressionLoss
from trunkfirst.trunks import reuse_trunk

FOLDER = Path(__file__).parent / "golden"
TRAIN, NEW = slice(0, 28), slice(28, 34)
DOUBLE = np.dtype(np.float64)
Numbers = dict[str, np.ndarray]


# -- stored arrays


def make_arrays() -> Numbers:
    """The arrays that are stored: samples of two channels with two input functions, and weights of networks."""
    rng = np.random.default_rng(20)
    f, g = rng.normal(size=(34, 4)), rng.uniform(-1, 1, (34, 2))
    y = rng.uniform(-1, 1, (40, 2))
    phase = f @ rng.normal(size=(4, 2)) @ y.T / 4
    first = 3 + np.sin(phase) + g[:, :1] * y[:, 0] ** 2
    second = 10 * (4 + np.cos(phase) * y[:, 1] + g[:, 1:] * g[:, :1])
    arrays = {
        "f": f,
        "g": g,
        "sensors": np.linspace(0, 1, 4)[:, None],
        "points": y,
        "new_points": rng.uniform(-1, 1, (5, 2)),
        "outputs": np.stack([first, second], axis=2),
        "point_weights": rng.uniform(0.5, 1.5, 40),
        "sample_weights": rng.uniform(0.5, 1.5, 34),
        "matrix": rng.normal(size=(28, 6)),
    }
    for name, widths in (("trunk", (2, 7, 5)), ("known", (2, 12, 8)), ("branch", (6, 8, 6))):
        for layer, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
            arrays[f"{name}_W{layer}"] = rng.normal(size=(n_out, n_in)) / np.sqrt(n_in)
            arrays[f"{name}_b{layer}"] = rng.normal(size=n_out) / 2
    return arrays


@ft.cache
def arrays(noise: float = 0.0, seed: int = 0) -> Numbers:
    """The stored arrays, every number times 1 + `noise` times a normal one."""
    rng = np.random.default_rng(seed)
    with np.load(FOLDER / "arrays.npz") as stored:
        return {name: stored[name] * (1 + noise * rng.normal(size=stored[name].shape)) for name in stored.files}


def network(of: Numbers, name: str) -> Perceptron:
    """A stored network."""
    layers = range(sum(key.startswith(f"{name}_W") for key in of))
    return Perceptron(
        tuple(jnp.asarray(of[f"{name}_W{layer}"]) for layer in layers),
        tuple(jnp.asarray(of[f"{name}_b{layer}"]) for layer in layers),
        "tanh",
    )


# -- data


def data_of(kind: str, of: Numbers, folder: Path, rows: slice = TRAIN) -> Any:
    """The samples of one kind of data; shards are written to `folder`."""
    functions = {"f": trunkfirst.InputFunction(of["f"], of["sensors"], np.full(4, 0.25)), "g": of["g"]}
    more: dict[str, Any] = {}
    outputs = of["outputs"] if kind == "channels" else of["outputs"][..., 0]
    if kind == "weighted":
        more = {"point_weights": of["point_weights"], "sample_weights": of["sample_weights"]}
    if kind == "fixed":
        outputs = outputs * (of["points"][:, 0] - of["points"][:, 0].min())
    if kind == "grid":  # f and g side by side as one input on a grid of 2 times 3
        grid = np.concatenate([of["f"], of["g"]], axis=1)
        functions = {"f": trunkfirst.InputFunction(grid, grid_shape=(2, 3))}
    data = trunkfirst.OperatorData(functions, of["points"], outputs, **more).take(rows)
    if kind == "scattered" and rows == TRAIN:
        return _scattered(data)
    if kind == "sharded" and rows == TRAIN:
        blocks = [data.take(slice(start, start + 6)) for start in range(0, 28, 6)]
        return trunkfirst.write_shards(blocks, folder / "shards")
    return data


def _scattered(data: Any) -> Any:
    """Every sample at 30 or more of the points, not the same ones."""
    count = len(data.points)
    chosen = [np.sort((np.arange(30 + k % 5) * 7 + 3 * k) % count) for k in range(data.samples)]
    return trunkfirst.scattered_from_lists(
        {name: data.inputs[name] for name in data.inputs},
        [data.points[c] for c in chosen],
        [u[c] for u, c in zip(data.outputs, chosen, strict=True)],
    )


# -- methods

STANDARDISED = trunkfirst.StandardisedInputs()
PER_INPUT = trunkfirst.PerInput({"f": trunkfirst.PrincipalInputs(3), "g": STANDARDISED})
# The defaults of version 0.1, with standardised inputs.
DEFAULTS = {"inputs": STANDARDISED, "coordinates": trunkfirst.Coordinates(rescale=False), "weights": "none"}
TRUNK = {"hidden": (7,), "width": 5, "activation": "tanh", "initialisation": "xavier"}
BRANCH = {"hidden": (8,), "activation": "tanh", "initialisation": "xavier"}


def _network_branch(n: int, **more: Any) -> Any:
    return trunkfirst.NetworkBranch(**{**BRANCH, "skip": False, "ridge": 1e-4, "decay": 0.0, **more}, iterations=n)


def _branches(n: int) -> dict[str, Any]:
    """Every kind of branch; networks with `n` iterations."""
    return {
        "network": trunkfirst.JointBranch(**BRANCH, minimiser=trunkfirst.Adam(1e-2), iterations=n),
        "projected network": _network_branch(n),
        "active neurons": trunkfirst.ActiveNeurons(8, iterations=min(n, 20)),
        "kernel": trunkfirst.Kernel(),
        "linear": trunkfirst.Linear(),
    }


def _network_trunk(n: int, starts: int = 2) -> Any:
    return trunkfirst.NetworkTrunk(**TRUNK, iterations=n, starts=starts)


def _joint(n: int, **more: Any) -> Any:
    of_trunk = {name: more.pop(name) for name in ("p", "batches") if name in more}
    trunk = trunkfirst.JointTrunk(**TRUNK, minimiser=trunkfirst.Adam(1e-2), iterations=n, **of_trunk)
    return trunkfirst.TwoStep(trunk, _branches(n)["network"], **{**DEFAULTS, **more})


def _projected(n: int, branch: Any = "linear", **more: Any) -> Any:
    branch = _branches(n)[branch] if isinstance(branch, str) else branch
    return trunkfirst.TwoStep(**{"trunk": _network_trunk(n), "branch": branch, **DEFAULTS, **more})


def _monolithic(n: int, *, stacked: bool = False, **more: Any) -> Any:
    trunk, branch = trunkfirst.TrunkNetwork(**TRUNK), trunkfirst.BranchNetwork(**BRANCH, stacked=stacked)
    return trunkfirst.Monolithic(trunk, branch, trunkfirst.Adam(1e-2), n, **DEFAULTS, **more)


def _monolithic_projected(n: int) -> Any:
    trunk = trunkfirst.TrunkNetwork(**{**TRUNK, "width": 7})
    return trunkfirst.MonolithicProjected(trunk, trunkfirst.BranchNetwork(**BRANCH), iterations=n, **DEFAULTS)


def _product(n: int) -> Any:
    return _projected(n, _network_branch(n, product=True, skip=True), inputs=PER_INPUT)


def _convolution(n: int) -> Any:
    return _projected(n, _network_branch(n, hidden=(3, 6), initialisation="he", convolution=True))


def _everything(n: int) -> Any:
    """Coordinates and outputs with all that can be put around them."""
    return _projected(
        n,
        "kernel",
        trunk=_network_trunk(n, starts=1),
        coordinates=trunkfirst.Coordinates(rescale=True, periods={"x": 2.5}, fourier=3),
        output=trunkfirst.Output(positive=True),
        weights="relative",
    )


def _separate(n: int) -> Any:
    return _projected(n, trunk=trunkfirst.SeparateTrunks(_network_trunk(n, starts=1)))


KINDS = ("network", "projected network", "active neurons", "kernel", "linear")
# A whole fit: the kind of data, and the method with its iterations for each step.
FITS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "two-step": ("aligned", _joint),
    "two-step, weighted": ("weighted", _joint),
    "two-step without QR": ("aligned", ft.partial(_joint, orthonormalise=None)),
    "two-step with SVD": ("aligned", ft.partial(_joint, orthonormalise=trunkfirst.SVD())),
    "two-step, p = 4": ("aligned", ft.partial(_joint, p=4.0)),
    "two-step, batches": ("aligned", ft.partial(_joint, batches=trunkfirst.Batches(9, 20))),
    "two-step, single precision": ("aligned", ft.partial(_joint, precision="single")),
    "monolithic": ("aligned", _monolithic),
    "monolithic with transform": ("weighted", ft.partial(_monolithic, train_transform=True)),
    "monolithic, stacked": ("aligned", ft.partial(_monolithic, stacked=True)),
    "monolithic projected": ("aligned", _monolithic_projected),
    **{
        f"{branch}, {kind}": (kind, ft.partial(_projected, branch=branch))
        for kind in ("aligned", "scattered", "sharded")
        for branch in KINDS
    },
    "relative": ("aligned", ft.partial(_projected, weights="relative")),
    "channels": ("channels", _projected),
    "separate trunks": ("channels", _separate),
    "fixed": ("fixed", ft.partial(_projected, output=trunkfirst.Output(fixed=("x-",)))),
    "product with skip": ("aligned", _product),
    "convolution": ("grid", _convolution),
    "coordinates and logarithm": ("aligned", _everything),
}


def fit_numbers(name: str, folder: Path, iterations: int) -> tuple[Any, Numbers]:
    """The operator of a whole fit, and its numbers."""
    kind, make = FITS[name]
    data = data_of(kind, arrays(), folder)
    result = fit_method(data, make(iterations), key=3)
    losses = np.array([step.loss for step in result.history])
    return result.operator, {"losses": losses, **_numbers(result, kind, arrays(), folder)}


def _numbers(result: Any, kind: str, of: Numbers, folder: Path) -> Numbers:
    """What a fit found, and how good it is on new samples."""
    trunk, branch = result.diagnostics["trunk"], result.diagnostics["branch"]
    found = {"trunk loss": trunk["loss"], "rank": trunk["rank"], "trunk limit": trunk.get("limit")}
    if branch is not None:
        found |= {"branch loss": branch["loss"], "condition": trunk["condition"]}
    new = data_of(kind, of, folder, NEW)
    evaluation = trunkfirst.evaluate(result.operator, new)
    found |= {"errors": evaluation.errors, "optimal errors": evaluation.optimal_errors}
    found |= operator_numbers(result.operator, new, of)
    return {name: np.asarray(value, float) for name, value in found.items() if value is not None}


def operator_numbers(operator: Any, data: Any, of: Numbers) -> Numbers:
    """Predictions of an operator, and their derivatives with respect to the points."""
    inputs = {name: function.values for name, function in data.inputs.items()}
    return {
        "predictions": np.asarray(operator.predict(inputs, of["new_points"]), float),
        "gradient": np.asarray(operator.gradient(inputs, of["new_points"]), float),
    }


# -- closed forms: nothing is trained

KERNEL = trunkfirst.Kernel(length=2.0, ridge=1e-2)
LINEAR = trunkfirst.Linear(ridge=1e-6)
LEGENDRE = trunkfirst.PerInput({"f": trunkfirst.BasisInputs("legendre", 3), "g": trunkfirst.RawInputs()})
# Behind the stored trunk: the kind of data, the branch, and what else the method says.
CLOSED_FORMS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    **{f"{kind}, linear": (kind, LINEAR, {}) for kind in ("aligned", "weighted", "scattered", "sharded")},
    **{f"{kind}, kernel": (kind, KERNEL, {}) for kind in ("aligned", "scattered", "sharded", "channels")},
    "automatic linear": ("aligned", trunkfirst.Linear(), {}),
    "automatic kernel": ("aligned", trunkfirst.Kernel(), {}),
    "without QR": ("aligned", LINEAR, {"orthonormalise": None}),
    "SVD": ("aligned", LINEAR, {"orthonormalise": trunkfirst.SVD()}),
    "relative": ("aligned", LINEAR, {"weights": "relative"}),
    "positive": ("aligned", LINEAR, {"output": trunkfirst.Output(positive=True)}),
    "fixed": ("fixed", LINEAR, {"output": trunkfirst.Output(fixed=("x-",))}),
    "per input": ("aligned", KERNEL, {"inputs": PER_INPUT}),
    "predictive": ("aligned", KERNEL, {"inputs": trunkfirst.PredictiveInputs(4)}),
    "Legendre": ("aligned", LINEAR, {"inputs": LEGENDRE}),
}


# What perturbed data do not show: a kernel matrix has condition 1 / ridge, and the stored kernel has
# coefficients of about 1e4 that cancel.
INNER_CONDITION = {"automatic kernel": 1e6, "kernel": 1e4}


def closed_form_numbers(name: str, folder: Path, noise: float = 0.0, seed: int = 0) -> Numbers:
    """Step 2 behind the stored trunk, by a closed form."""
    kind, branch, more = CLOSED_FORMS[name]
    of = arrays(noise, seed)
    method = trunkfirst.TwoStep(branch=branch, **{**DEFAULTS, **more})
    data = data_of(kind, of, folder)
    with jax.enable_x64(True):
        step1 = reuse_trunk(Trunk(network(of, "known")), method.encode(data).fields)
    return _numbers(fit_method(data, method, trunk_result=step1), kind, of, folder)


# -- losses and their gradients at stored weights


def _joint_loss(kind: str, p: float, of: Numbers, folder: Path) -> tuple[Any, Any]:
    encoded = encode(data_of(kind, of, folder), _joint(1), DOUBLE)
    loss = make_loss(encoded.fields, jnp.zeros((28, 0)), p=p, dtype=DOUBLE)
    return loss, FreeCoefficients(Trunk(network(of, "trunk")), jnp.asarray(of["matrix"]))


def _monolithic_loss(p: float, of: Numbers, folder: Path) -> tuple[Any, Any]:
    encoded = encode(data_of("weighted", of, folder), _monolithic(1), DOUBLE)
    loss = make_loss(encoded.fields, encoded.inputs, p=p, dtype=DOUBLE)
    return loss, BranchCoefficients(Trunk(network(of, "trunk")), network(of, "branch"), jnp.eye(6))


def _bilinear(of: Numbers, folder: Path) -> tuple[Any, Any]:
    encoded = encode(data_of("weighted", of, folder), _monolithic_projected(1), DOUBLE)
    loss: Any = make_loss(encoded.fields, encoded.inputs, p=2.0, dtype=DOUBLE)
    pair = HiddenPair(hidden_layers(network(of, "trunk")), hidden_layers(network(of, "branch")))
    return BilinearProblem(loss, 1e-3), pair


def _trunk_problem(kind: str, of: Numbers, folder: Path) -> tuple[Any, Any]:
    fields = _projected(1).encode(data_of(kind, of, folder)).fields
    return fields.problem(DOUBLE)(1e-3), Searched(network(of, "trunk"), False)


def _branch_loss(of: Numbers, folder: Path) -> tuple[Any, Any]:
    inputs = jnp.asarray(np.concatenate([of["f"], of["g"]], axis=1)[TRAIN])
    weights = jnp.asarray(of["sample_weights"][TRAIN])
    return RegressionLoss(inputs, jnp.asarray(of["matrix"]), weights), network(of, "branch")


def _branch_problem(of: Numbers, folder: Path) -> tuple[Any, Any]:
    inputs = jnp.asarray(np.concatenate([of["f"], of["g"]], axis=1)[TRAIN])
    features = HiddenFeatures(inputs, jnp.sqrt(jnp.asarray(of["sample_weights"][TRAIN])))
    problem = SeparableProblem(features, jnp.asarray(of["matrix"]), 1e-3)
    return problem, LayerFeatures(hidden_layers(network(of, "branch")))


OBJECTIVES: dict[str, Callable[[Numbers, Path], tuple[Any, Any]]] = {
    "joint trunk": ft.partial(_joint_loss, "aligned", 2.0),
    "joint trunk, weighted": ft.partial(_joint_loss, "weighted", 2.0),
    "joint trunk, p = 4": ft.partial(_joint_loss, "weighted", 4.0),
    "monolithic": ft.partial(_monolithic_loss, 2.0),
    "monolithic, p = 4": ft.partial(_monolithic_loss, 4.0),
    "monolithic projected": _bilinear,
    **{f"trunk, {kind}": ft.partial(_trunk_problem, kind) for kind in ("weighted", "scattered", "sharded")},
    "branch network": _branch_loss,
    "projected branch network": _branch_problem,
}


def objective_numbers(name: str, folder: Path, noise: float = 0.0, seed: int = 0) -> Numbers:
    """Value of a loss and its gradient, all of its arrays in a row."""
    with jax.enable_x64(True):
        objective, parameters = OBJECTIVES[name](arrays(noise, seed), folder)
        value, gradient = eqx.filter_jit(objective.value_and_grad)(parameters, key=jr.key(0))
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(gradient)]
    return {"loss": np.asarray(value), "gradient": np.concatenate(leaves)}


# -- what version 0.1 wrote

# Fits whose operators are stored as model folders, and the kind of data that they take.
MODELS = {
    "kernel": "coordinates and logarithm",
    "channels": "separate trunks",
    "fixed": "fixed",
    "product": "product with skip",
    "convolution": "convolution",
    "stacked": "monolithic, stacked",
    "active-neurons": "active neurons, scattered",
}


def model_numbers(name: str, folder: Path, noise: float = 0.0, seed: int = 0) -> Numbers:
    """Predictions of a model folder, and their errors."""
    of = arrays(noise, seed)
    operator = trunkfirst.load(FOLDER / "models" / name)
    data = data_of(FITS[MODELS[name]][0], of, folder, NEW)
    evaluation = trunkfirst.evaluate(operator, data)
    errors = {"errors": evaluation.errors, "optimal errors": evaluation.optimal_errors}
    return {**errors, **operator_numbers(operator, data, of)}


# Options of the command `fit` that leave nothing to the clock.
FEW_ITERATIONS = [
    f"--set={setting}"
    for setting in (
        "trunk.iterations=60",
        "trunk.starts=2",
        "branch.network.iterations=20",
        "branch.trial_iterations=10",
    )
]


def write_stored_data(path: Path) -> Path:
    """All samples in a file, for the command `fit`."""
    trunkfirst.write_data(data_of("aligned", arrays(), path.parent, slice(0, 34)), path)
    return path


def config_file(method: str) -> Path:
    """A configuration file that version 0.1 wrote for a short run of this method."""
    return FOLDER / "configs" / f"{method}.toml"

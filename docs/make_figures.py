"""Draws figures of README and documentation from real runs: python docs/make_figures.py [ONE].

ONE draws some of them: `shock-tube` that of the README, whose errors it prints, `domains` those of problems.md,
and `moving` that of moving.md.

The example of method.md is a front at a: a -> u(x) = 1 / (1 + exp(-(x - a) / 0.04)). Every number in the
figures is from these runs, which take minutes.
"""

import importlib.util
import sys
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import trunkfirst
from trunkfirst.error_budget import error_budget, trunk_basis
from trunkfirst.problems.conductivity import conductivity
from trunkfirst.problems.generate import get_problem

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a9099"
TRUNK = {"hidden": (40, 40), "width": 20}
BRANCH = {"hidden": (60,), "activation": "tanh", "initialisation": "xavier", "skip": False}
COMMON = {"inputs": "standardise", "weights": "none"}


def fronts(samples: int, seed: int) -> trunkfirst.OperatorData:
    """Fronts at random positions."""
    a = np.random.default_rng(seed).uniform(0.2, 0.8, (samples, 1))
    x = np.linspace(0, 1, 120)
    return trunkfirst.OperatorData(a, x[:, None], 1 / (1 + np.exp(-(x - a) / 0.04)))


TRAIN, TEST = fronts(200, 0), fronts(100, 1)
X = TRAIN.points[:, 0]


def methods() -> dict[str, trunkfirst.FitResult]:
    """The same networks and data, trained by three methods."""
    adam = {"minimiser": trunkfirst.Adam(), "iterations": 10_000}
    chosen = {
        "both networks at once, Adam": trunkfirst.Monolithic(
            trunkfirst.TrunkNetwork(**TRUNK), trunkfirst.BranchNetwork(**BRANCH), **adam, **COMMON
        ),
        "step 1, Adam": trunkfirst.TwoStep(trunkfirst.JointTrunk(**TRUNK, **adam), trunkfirst.Kernel(), **COMMON),
        "step 1, coefficients solved for": trunkfirst.TwoStep(
            trunkfirst.NetworkTrunk(**TRUNK, iterations=4000, starts=1),
            trunkfirst.NetworkBranch(**BRANCH, iterations=400, ridge=1e-4, decay=0.0),
            **COMMON,
        ),
    }
    return {name: trunkfirst.fit(TRAIN, method=method) for name, method in chosen.items()}


def draw_idea(operator: trunkfirst.Operator) -> Figure:
    """An output is a sum of trunk functions."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 2.9))
    for k in range(6):
        left.plot(X, TRAIN.outputs[k], color=BLUE, alpha=0.8)
    left.set(title="outputs: one curve per sample", xlabel="x")
    basis = trunk_basis(operator, TRAIN)
    # Rotated to the principal directions of the outputs.
    _, _, directions = np.linalg.svd(basis.coefficients(TRAIN.outputs), full_matrices=False)
    functions = basis.values @ directions.T
    middle.plot(X, functions[:, :5], lw=1.2)
    middle.set(title="trunk: five of the functions", xlabel="x")
    sample = TEST.outputs[:1]
    coefficients = directions @ basis.coefficients(sample)[0]
    for count, colour in ((2, PINK), (5, GREEN), (10, ORANGE)):
        right.plot(
            X, functions[:, :count] @ coefficients[:count], color=colour, lw=1.2, label=f"{count} functions"
        )
    right.plot(X, sample[0], "k--", lw=1, label="truth")
    right.set(title="branch: how much of each", xlabel="x")
    right.legend(fontsize=8)
    return figure


def draw_stall(results: dict[str, trunkfirst.FitResult]) -> Figure:
    """Losses against iterations."""
    figure, panel = plt.subplots(figsize=(6.4, 3.6))
    for (name, result), colour in zip(results.items(), (ORANGE, GREEN, BLUE), strict=True):
        steps = [step for step in result.history if step.stage != "branch"]
        panel.loglog([s.iteration for s in steps], [s.best_loss for s in steps], color=colour, label=name)
    panel.set(xlabel="iteration", ylabel="training loss (mean square error)", ylim=(1e-11, 1))
    panel.legend()
    return figure


def draw_orthonormal(trunk: np.ndarray, operator: trunkfirst.Operator) -> Figure:
    """Functions after step 1 and after orthonormalisation, with their inner products."""
    basis = trunk_basis(operator, TRAIN)
    scaled = trunk / np.linalg.norm(trunk, axis=0)
    sizes = np.linalg.svd(scaled, compute_uv=False)
    figure, panels = plt.subplots(2, 2, figsize=(8, 5), width_ratios=(2, 1))
    sets = {
        f"as trained: condition number {sizes[0] / sizes[-1]:.0e}": scaled,
        f"orthonormal: {basis.rank} of {trunk.shape[1]} functions kept": basis.values / len(X) ** 0.5,
    }
    for (title, functions), (curves, matrix) in zip(sets.items(), panels, strict=True):
        curves.plot(X, functions[:, :8], lw=1)
        curves.set(title=title, xlabel="x")
        shown = matrix.imshow(np.abs(functions.T @ functions), cmap="viridis", vmin=0, vmax=1)
        matrix.set(title="inner products", xticks=[], yticks=[])
        figure.colorbar(shown, ax=matrix)
    return figure


def draw_targets(free: np.ndarray, operator: trunkfirst.Operator) -> Figure:
    """What the branch has to learn, as functions of the input: without and with orthonormalisation."""
    order = np.argsort(TRAIN.flat_inputs[:, 0])
    a = TRAIN.flat_inputs[order, 0]
    basis = trunk_basis(operator, TRAIN)
    targets = basis.coefficients(TRAIN.outputs)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1))
    left.plot(a, free[order][:, 1:5], lw=1)
    left.set(title="coefficients of the trained functions", xlabel="input a")
    right.plot(a, targets[order][:, :4], lw=1.5)
    reached = basis.coefficients(operator.predict(TEST.flat_inputs, TEST.points))
    right.plot(TEST.flat_inputs[::4, 0], reached[::4, :4], "k.", ms=4)
    right.set(title="of the orthonormal ones (dots: branch, test)", xlabel="input a")
    return figure


def draw_budget(good: trunkfirst.FitResult) -> Figure:
    """Where the error comes from, for operators with one weakness each."""
    few = trunkfirst.NetworkTrunk(hidden=(40, 40), width=6, iterations=1000, starts=1)
    narrow = trunkfirst.TwoStep(few, trunkfirst.Kernel(), **COMMON)
    wide = trunkfirst.TwoStep(
        trunkfirst.NetworkTrunk(**TRUNK, iterations=4000, starts=1), trunkfirst.Linear(), **COMMON
    )
    kernel = trunkfirst.TwoStep(wide.trunk, trunkfirst.Kernel(), **COMMON)
    operators = {
        "good": good.operator,
        "6 trunk functions": trunkfirst.fit(TRAIN, method=narrow).operator,
        "linear branch": trunkfirst.fit(TRAIN, method=wide, trunk_result=good.trunk_result).operator,
        "12 samples": trunkfirst.fit(TRAIN.take(slice(0, 12)), method=kernel).operator,
    }
    figure, panel = plt.subplots(figsize=(6.4, 3.3))
    budgets = [error_budget(operator, TEST, TEST) for operator in operators.values()]
    places = np.arange(len(budgets))
    for shift, part, colour in ((-0.2, "trunk", BLUE), (0.2, "branch", ORANGE)):
        sizes = [budget.relative(getattr(budget, part)) ** 0.5 for budget in budgets]
        bars = panel.bar(places + shift, sizes, 0.38, color=colour, label=f"{part}'s part")
        panel.bar_label(bars, [f"{size:.0e}" for size in sizes], fontsize=8)
    panel.set(yscale="log", ylabel="relative error (rms)", xticks=places, xticklabels=operators, ylim=(1e-9, 30))
    panel.legend(ncols=2, loc="upper left")
    return figure


def draw_moving() -> Figure:
    """An unseen sample with fixed functions and with as many that move, and those for three inputs."""
    x, a = np.linspace(0, 1, 150), np.linspace(0, 1, 121)[:, None]
    data = trunkfirst.OperatorData(a, x[:, None], np.where(x < 0.2 + 0.6 * a, 1.0 + a - x, 0.1 * x))
    train, unseen = data.take(np.arange(0, 121, 2)), data.take(np.arange(1, 121, 2))
    method = trunkfirst.TwoStep(trunkfirst.MovingTrunk(iterations=400, members=1), trunkfirst.Kernel(), **COMMON)
    operator = trunkfirst.fit(train, method=method, intervals=False).operator
    modes = np.linalg.svd(train.outputs, full_matrices=False)[2][: operator.rank]
    figure, panels = plt.subplots(1, 4, figsize=(10, 2.9), width_ratios=(1.6, 1, 1, 1))
    truth, inputs = unseen.outputs[30], unseen.flat_inputs[[10, 30, 50]]
    panels[0].plot(x, truth, color=GREY, lw=4, alpha=0.6, label="truth")
    panels[0].plot(x, modes.T @ (modes @ truth), color=ORANGE, label=f"{operator.rank} fixed functions, at best")
    panels[0].plot(x, operator.predict(inputs[1:2])[0], color=BLUE, label=f"{operator.rank} that move, predicted")
    panels[0].set(title="an unseen sample", xlabel="y")
    panels[0].legend(fontsize=7)
    import jax

    with jax.enable_x64(True):
        basis = np.asarray(operator.basis(train.points, operator.features(inputs)))
    for panel, number, functions in zip(panels[1:], inputs[:, 0], basis, strict=True):
        panel.plot(x, functions, lw=1)
        panel.set(title=f"functions, f = {number:.2f}", xlabel="y")
    return figure


def draw_shock_tube() -> Figure:
    """An unseen field of a shock tube and the errors of all unseen fields, beside PCA with two regressions."""
    data = trunkfirst.make_data("riemann")
    data = trunkfirst.OperatorData(data.inputs, data.points, data.outputs[..., 0], output_name="velocity")
    train, unseen = data.take(slice(0, 400)), data.take(slice(400, 500))
    baselines = script("benchmarks/_baselines.py")
    fields, outputs = {}, train.outputs[..., None]
    for name, regression in (("PCA + ridge", baselines.Ridge()), ("PCA + kernel ridge", baselines.KernelRidge())):
        begin = time.process_time()
        found, _ = baselines.predict(regression, train.flat_inputs, outputs, unseen.flat_inputs)
        fields[name] = (found[..., 0], time.process_time() - begin)
    begin = time.process_time()
    trunk, inputs = trunkfirst.MovingTrunk(iterations=400, members=1), trunkfirst.StandardisedInputs("log")
    method = trunkfirst.TwoStep(trunk, trunkfirst.Kernel(), inputs=inputs, weights="relative")
    operator = trunkfirst.fit(train, method=method, minutes=None, intervals=False).operator
    fields["trunkfirst, moving trunk"] = (operator.predict(unseen.flat_inputs), time.process_time() - begin)
    norms = np.linalg.norm(unseen.outputs, axis=1)
    errors = {n: np.linalg.norm(u - unseen.outputs, axis=1) / norms for n, (u, _) in fields.items()}
    for name, each in errors.items():
        sys.stdout.write(f"{name}: mean {each.mean():.2e}, {fields[name][1]:.1f} s of processor time\n")
    typical = int(np.argsort(errors["PCA + kernel ridge"])[len(norms) // 2])  # its median
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), width_ratios=(1.5, 1))
    left.plot(x := data.points[:, 0], unseen.outputs[typical], color=GREY, lw=5, alpha=0.5, label="exact")
    for (name, each), colour in zip(errors.items(), (PINK, ORANGE, BLUE), strict=True):
        left.plot(x, fields[name][0][typical], color=colour, lw=1.2, label=f"{name}: error {each[typical]:.1e}")
        right.semilogy(np.arange(1, len(norms) + 1), np.sort(each), color=colour, label=name)
    left.set(title="velocity in a shock tube of unseen pressure", xlabel="x", ylim=(-0.2, None))
    left.legend(fontsize=8, loc="lower center", ncols=2)
    right.set(title="relative l2 errors of 100 unseen fields, sorted", xlabel="field")
    return figure


def draw_problem(problem: str, method: trunkfirst.TwoStep) -> Figure:
    """Truth, prediction and error of the median test sample, from 300 samples and few iterations."""
    data = trunkfirst.make_data(problem, samples=300)
    split = trunkfirst.Split.random(data.samples, validation_share=0, test_share=0.1, seed=0)
    operator = trunkfirst.fit(data.take(split.train), method=method).operator
    test = data.take(split.test)
    errors = trunkfirst.evaluate(operator, test).errors
    sample = int(np.argsort(errors)[len(errors) // 2])
    truth, predicted = test.outputs[sample], operator.predict(test.flat_inputs[[sample]], test.points)[0]
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.7))
    pictures = {
        "truth": truth,
        "prediction": predicted,
        f"error, {errors[sample]:.0e} relative": predicted - truth,
    }
    for panel, (title, values) in zip(panels, pictures.items(), strict=True):
        field = title in ("truth", "prediction")
        limits = (truth.min(), truth.max()) if field else (-np.abs(values).max(), np.abs(values).max())
        shown = panel.tripcolor(
            *data.points.T,
            data.triangles,
            values,
            shading="gouraud",
            cmap="viridis" if field else "RdBu",
            vmin=limits[0],
            vmax=limits[1],
        )
        panel.set(title=title, aspect="equal", xticks=[], yticks=[])
        figure.colorbar(shown, ax=panel)
    return figure


# What is to be solved, as matplotlib typesets it; the pictures are the statements of problems.md.
STATEMENTS = {
    "nonlinear-conductivity": (
        r"$-\nabla\cdot(\beta\,p\,\nabla p) = 1\quad\mathrm{in}\ \Omega = (-1, 1)^2$",
        r"$p(x, y) = \cos x\quad\mathrm{on}\ \Gamma_D = \partial\Omega$",
        r"$\mathcal{G}: \beta \mapsto p$",
        r"$\beta \in \{1, 2, \ldots, 1000\}$",
    ),
    "discontinuous-conductivity": (
        r"$-\nabla\cdot(\kappa\,\nabla p) = 0\quad\mathrm{in}\ \Omega = (-1, 1)^2$",
        r"$\kappa = \beta\ \mathrm{in}\ \Omega_1 = \{x^2 + y^2 \leq 1/4\},\quad"
        r"\kappa = 1\ \mathrm{in}\ \Omega_2 = \Omega\setminus\Omega_1$",
        r"$p = 0\ \mathrm{on}\ \Gamma_{D_1},\quad -\kappa\,\nabla p\cdot n = 1\ \mathrm{on}\ \Gamma_{N_1},"
        r"\quad -\kappa\,\nabla p\cdot n = 0\ \mathrm{on}\ \Gamma_{N_2}$",
        r"$\mathcal{G}: p \mapsto \kappa$",
        r"$\beta \in \{0.01, 0.02, \ldots, 10\}$",
    ),
    "multiple-inputs": (
        r"$-\nabla\cdot(\kappa\,p\,\nabla p) = f\quad\mathrm{in}\ \Omega = (-1, 1)^2$",
        r"$p = g\quad\mathrm{on}\ \Gamma_D = \partial\Omega$",
        r"$\mathcal{G}: (f, \kappa, g) \mapsto p$",
        r"$(f, \kappa, g) \in \{0.1, 0.2, \ldots, 10\}^3$",
    ),
    "random-conductivity": (
        r"$-\nabla\cdot(a\,\nabla u) = 1\quad\mathrm{in}\ \Omega = (0, 1)^2$",
        r"$u = 0\quad\mathrm{on}\ \Gamma_D = \partial\Omega$",
        r"$a = 12\ \mathrm{where}\ z \geq 0,\quad a = 3\ \mathrm{where}\ z < 0$",
        r"$z \sim \mathcal{N}(0,\,(-\Delta + 9)^{-2}),\quad\partial z/\partial n = 0\ \mathrm{on}\ \Gamma_D$",
        r"$\mathcal{G}: a \mapsto u$",
    ),
}


def draw_domain(problem: str) -> Figure:
    """The domain with its mesh or medium and the names of its boundary, and the equations next to it."""
    figure, (panel, words) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=(1, 1.9))
    low, high = get_problem(problem).interval
    middle, far = (low + high) / 2, (high - low) / 2 * 1.17
    if problem == "random-conductivity":
        panel.imshow(
            conductivity(3), cmap="Blues", extent=(0, 1, 0, 1), origin="lower", alpha=0.6, vmin=0, vmax=14
        )
    else:
        mesh = get_problem(problem).mesh
        panel.triplot(*mesh.points.T, mesh.triangles, color=GREY, lw=0.25)
    panel.add_patch(plt.Rectangle((low, low), high - low, high - low, fill=False, ec="black", lw=1.4))
    sides = dict.fromkeys(("top", "bottom", "left", "right"), r"\Gamma_D")
    if problem == "discontinuous-conductivity":
        panel.add_patch(plt.Circle((0, 0), 0.5, fc="#56B4E955", ec=BLUE, lw=1.4))
        sides = {"top": r"\Gamma_{D_1}", "bottom": r"\Gamma_{N_1}"} | dict.fromkeys(
            ("left", "right"), r"\Gamma_{N_2}"
        )
        label(panel, 0, 0, r"\Omega_1", boxed=True)
        label(panel, -0.72, 0.72, r"\Omega_2", boxed=True)
    elif problem != "random-conductivity":
        label(panel, middle, middle, r"\Omega", boxed=True)
    places = {"top": (0, far), "bottom": (0, -far), "left": (-far, 0), "right": (far, 0)}
    for side, name in sides.items():
        label(panel, middle + places[side][0], middle + places[side][1], name)
    reach = 1.12 * far
    panel.set(xlim=(middle - reach, middle + reach), ylim=(middle - reach, middle + reach), aspect="equal")
    panel.axis("off")
    lines = STATEMENTS[problem]
    for row, line in enumerate(lines):
        words.text(0, 1 - (row + 0.5) / len(lines), line, va="center", fontsize=14)
    words.axis("off")
    return figure


def label(panel: Axes, x: float, y: float, name: str, *, boxed: bool = False) -> None:
    """A letter in the drawing, on white where lines are behind it."""
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85} if boxed else None
    panel.text(x, y, f"${name}$", ha="center", va="center", fontsize=13, bbox=box)


def script(name: str):
    """A script of this repository as a module."""
    path = Path(__file__).parents[1] / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / name, metadata={"Date": None} if name.endswith("svg") else None)
    plt.close(figure)


def main(only: str = "") -> None:
    mpl.rcParams.update(
        {"figure.constrained_layout.use": True, "svg.hashsalt": "trunkfirst", "svg.fonttype": "path"}
        | {"axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 110, "axes.titlesize": 10}
        | {"mathtext.fontset": "cm"}
    )
    if only in ("", "domains"):
        for problem in STATEMENTS:
            save(draw_domain(problem), f"domain-{problem}.png")
    if only in ("", "shock-tube"):
        save(draw_shock_tube(), "shock-tube.png")
    if only in ("", "moving"):
        save(draw_moving(), "moving.svg")
    if only:
        return
    results = methods()
    projected = results["step 1, coefficients solved for"]
    trunk = projected.trunk_result
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        encoder = projected.operator.trunk.encoder
        raw = np.asarray(trunk.trunk(encoder(jnp.asarray(TRAIN.points))))
    save(draw_idea(projected.operator), "method-idea.svg")
    save(draw_stall(results), "method-stall.svg")
    save(draw_orthonormal(raw, projected.operator), "method-orthonormal.svg")
    save(draw_targets(trunk.coefficients, projected.operator), "method-targets.svg")
    save(draw_budget(projected), "method-budget.svg")
    for name, result in results.items():
        error = trunkfirst.evaluate(result.operator, TEST).summary()["mean_relative_l2"]
        sys.stdout.write(f"{name}: loss {result.diagnostics['trunk']['loss']:.1e}, test error {error:.1e}\n")
    for problem, method in script("examples/darcy.py").methods(600).items():
        save(draw_problem(problem, method), f"problem-{problem}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])

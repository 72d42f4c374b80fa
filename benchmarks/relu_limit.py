"""The search of the ReLU trunk of nonlinear-conductivity against time, and meshes of as many pieces.

    nice -n 19 taskset -c 1 python benchmarks/relu_limit.py --clock processor

A ReLU trunk is linear on pieces of the plane. Its training loss after longer and longer searches stands next to
that of continuous functions that are linear on the triangles of a uniform mesh, fitted to the same outputs, which
cubic functions interpolate between the points. Numbers are those that are free: all weights and biases of the
hidden layers, or the values at the corners, for each of the three functions that the outputs consist of.
Searches of earlier calls stay in the table.
"""

import argparse
import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
import scipy.interpolate
import scipy.sparse
import scipy.sparse.linalg
from _common import Stopwatch, Table, draw_curves, make_run_config, options_for, publish, published
from _two_step import prepared_data

from trunkfirst.encode import encode
from trunkfirst.fields import Fields
from trunkfirst.method import named_key
from trunkfirst.networks.layers import Perceptron, count_parameters

PROBLEM, FUNCTIONS = "nonlinear-conductivity", 3  # the fourth singular value is 1e-6 of the first
DTYPE = np.dtype(np.float64)
HEAD = ("what", "seed", "iterations", "seconds", "pieces", "numbers", "loss")


def main(argv: Sequence[str] | None = None) -> None:
    """Meshes, then searches; written after each search, because they are long."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.shares, options.seeds, options.divisions = [1 / 500], [0], [4, 8]
    method: Any = make_run_config("fast", PROBLEM, {"inputs": "standardise"}).method
    with jax.enable_x64(True):
        fields: Any = encode(prepared_data("fast", PROBLEM).train, method, DTYPE).fields
        meshes = mesh_rows(fields, options.divisions)
        searches = {tuple(row[1:3]): row for row in published("relu-limit", options).get("searches", [])}
        for seed in options.seeds:
            for share in options.shares:
                row = search_row(method.trunk, fields, seed, share, options.clock)
                searches[tuple(row[1:3])] = row
                report(options, [searches[key] for key in sorted(searches)], meshes)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shares", nargs="+", type=float, default=[0.25, 1, 4], help="of the preset's iterations")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="of the searches")
    divisions = [16, 32, 45, 64, 90]
    parser.add_argument("--divisions", nargs="+", type=int, default=divisions, help="of a side of the meshes")


def search_row(trunk: Any, fields: Fields, seed: int, share: float, clock: str) -> tuple[Any, ...]:
    """A search with a share of the preset's iterations."""
    watch, longer = Stopwatch(clock), dc.replace(trunk, iterations=int(share * trunk.iterations))
    result = longer.fit(fields, dtype=DTYPE, key=named_key(jr.key(seed), "trunk"))
    seconds, network = watch.read(), result.trunk.network
    hidden = Perceptron(network.weights[:-1], network.biases[:-1], network.activation)
    pieces = count_pieces(hidden, fields.points)
    return "trunk", seed, longer.iterations, seconds, pieces, count_parameters(hidden), result.loss


def count_pieces(hidden: Perceptron, points: np.ndarray, divisions: int = 2000) -> int:
    """Different patterns of active neurons at the points of a fine grid, told apart by random numbers."""
    axes = [np.linspace(low, high, divisions) for low, high in zip(points.min(0), points.max(0), strict=True)]
    rng, found = np.random.default_rng(0), set[int]()
    labels = [rng.integers(2**63, size=len(b), dtype=np.uint64) for b in hidden.biases]
    for first in axes[0]:
        x = np.stack([np.full(divisions, first), axes[1]], axis=1)
        pattern = np.zeros(divisions, np.uint64)
        for W, b, label in zip(hidden.weights, hidden.biases, labels, strict=True):
            z = x @ np.asarray(W).T + np.asarray(b)
            pattern += np.sum((z > 0) * label, axis=1, dtype=np.uint64)
            x = np.maximum(z, 0)
        found.update(pattern.tolist())
    return len(found)


def mesh_rows(fields: Fields, divisions: Sequence[int]) -> list[tuple[Any, ...]]:
    """Meshes of squares, two triangles each, and the least loss of a continuous function, linear on each."""
    _, s, V = np.linalg.svd(fields.outputs, full_matrices=False)
    functions = scipy.interpolate.CloughTocher2DInterpolator(
        fields.points, (s[:FUNCTIONS, None] * V[:FUNCTIONS]).T
    )
    line = np.linspace(-1, 1, 402)[1:-1]  # the points fill this square
    places = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    values = functions(places)
    rows: list[tuple[Any, ...]] = []
    for count in divisions:
        P = hats((places + 1) / 2 * count, count)
        solve = scipy.sparse.linalg.splu((P.T @ P + 1e-12 * scipy.sparse.eye(P.shape[1])).tocsc()).solve
        squares = np.sum((P @ solve(P.T @ values) - values) ** 2, axis=1)
        loss = float(squares.mean()) / len(fields.outputs)
        rows.append(("mesh", None, None, None, 2 * count**2, FUNCTIONS * P.shape[1], loss))
    return rows


def hats(places: np.ndarray, count: int) -> scipy.sparse.csr_matrix:
    """The hat functions of the mesh at places in units of its squares, which are cut along the diagonal."""
    corner = np.clip(places.astype(int), 0, count - 1)
    x, y = (places - corner).T
    right, up = np.where(x >= y, 1, 0), np.where(x >= y, 0, 1)
    steps = [(0, 0), (right, up), (1, 1)]
    columns = [(corner[:, 0] + i) * (count + 1) + corner[:, 1] + j for i, j in steps]
    weights = [1 - np.maximum(x, y), np.abs(x - y), np.minimum(x, y)]
    rows = np.tile(np.arange(len(places)), 3)
    shape = len(places), (count + 1) ** 2
    return scipy.sparse.csr_matrix((np.concatenate(weights), (rows, np.concatenate(columns))), shape=shape)


def report(options: argparse.Namespace, searches: list[Any], meshes: list[Any]) -> None:
    """The table and the figure of loss against pieces."""
    curves = {
        f"search, seed {seed}": [(row[4], row[6]) for row in searches if row[1] == seed]
        for seed in {row[1]: 0 for row in searches}
    } | {"uniform mesh": [(row[4], row[6]) for row in meshes]}

    def draw(axes: Any) -> None:
        axes.set(
            xlabel="pieces",
            ylabel="training loss",
            xscale="log",
            yscale="log",
            title="ReLU trunk of nonlinear-conductivity",
        )
        draw_curves(axes, curves)

    table = Table(
        "Loss of the ReLU trunk of nonlinear-conductivity after longer searches, and of meshes",
        HEAD,
        [*searches, *meshes],
    )
    publish("relu-limit", options, table, {"searches": searches}, draw)


if __name__ == "__main__":
    main()

"""Error against time on a shock tube: functions that move, DeepXDE's DeepONet and a Fourier neural operator.

    taskset -c 0 python benchmarks/moving_against_time.py --seconds 60 --clock processor

The set riemann of moving_features.py. Moving trunk and FNO: trainings from scratch, longer and longer. DeepXDE:
one run of Adam, batches of all samples, on the encoded input and the relative loss; of it the best moment counts,
though only the unseen samples know it. The FNO is that of against_fno.py; its input function is constant, the
logarithm of the pressure. Evaluation is not timed. Needs: pip install trunkfirst[bench]
"""

import argparse
from collections.abc import Sequence
from typing import Any

import against_fno
import numpy as np
from _common import Stopwatch, Table, draw_curves, make_run_config, options_for, publish
from moving_features import TRAIN, UNSEEN, make_set, mean_error, moving

import trunkfirst

Curve = list[tuple[float, float]]  # (seconds of training, mean relative l2 error on unseen samples)


def main(argv: Sequence[str] | None = None) -> None:
    """All contenders on the same samples, one after the other."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.iterations, options.seconds = [10], 2.0
    data = make_set("riemann")
    curves = {
        "trunkfirst, moving trunk": moving_curve(data, options),
        "FNO (neuraloperator)": fno_curve(data, options),
        "DeepXDE, Adam": deepxde_curve(data, options),
    }
    rows = [(name, *min(curve, key=lambda point: point[1])) for name, curve in curves.items()]
    title = "riemann: the least error on 100 unseen samples, with 400 for training"

    def draw(axes: Any) -> None:
        axes.set(xlabel="seconds", ylabel="mean relative l2 error", xscale="log", yscale="log", title="riemann")
        draw_curves(axes, curves)

    publish("moving-against-time", options, Table(title, ("contender", "seconds", "error"), rows), curves, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, nargs="+", default=[50, 150, 500, 1500], help="of moving trunks")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the longest training of the others")


def moving_curve(data: trunkfirst.OperatorData, options: argparse.Namespace) -> Curve:
    """Operators of moving_features.py with more and more iterations."""
    curve = Curve()
    for iterations in options.iterations:
        watch = Stopwatch(options.clock)
        operator = moving(data, 4, 0, iterations)
        curve.append((watch.read(), mean_error(operator, data)))
    return curve


def fno_curve(data: trunkfirst.OperatorData, options: argparse.Namespace) -> Curve:
    """The FNO for a quarter of the time, for half of it and for all of it."""
    parser = argparse.ArgumentParser()
    against_fno.add_options(parser)
    budget = parser.parse_args([], argparse.Namespace(clock=options.clock))
    logarithms = np.repeat(np.log(data.flat_inputs), len(data.points), axis=1)
    function = trunkfirst.InputFunction(logarithms, data.points)
    fields, curve = trunkfirst.OperatorData(function, data.points, data.outputs), Curve()
    unseen = fields.take(UNSEEN)
    for share in (0.25, 0.5, 1.0):
        budget.seconds = share * options.seconds
        trained, seconds = against_fno.timed("FNO", fields.take(TRAIN), budget)
        curve.append((seconds, against_fno.error(trained.predict(unseen.flat_inputs), unseen)))
    return curve


def deepxde_curve(data: trunkfirst.OperatorData, options: argparse.Namespace) -> Curve:
    """The errors during one run."""
    import _deepxde

    encoded = np.log(data.flat_inputs)
    encoded = (encoded - encoded[TRAIN].mean(axis=0)) / encoded[TRAIN].std(axis=0)
    places, unseen = (encoded[UNSEEN].astype("float32"), data.points.astype("float32")), data.outputs[UNSEEN]
    curve, watch = Curve(), Stopwatch(options.clock)

    def look(model: Any) -> None:
        now = watch.read()
        model.stop_training = now >= options.seconds
        if model.stop_training or now >= (1.3 * curve[-1][0] if curve else 0.5):
            with watch.paused():
                missed = np.linalg.norm(model.predict(places) - unseen, axis=1) / np.linalg.norm(unseen, axis=1)
                curve.append((now, float(missed.mean())))

    method = make_run_config("paper", "riemann", {"method": "monolithic"}).method
    model = _deepxde.make_model(method, encoded[TRAIN], data.take(TRAIN), "float32")
    _deepxde.compile_adam(model, is_relative=True)
    _deepxde.train(model, look, 10**9)
    return curve


if __name__ == "__main__":
    main()

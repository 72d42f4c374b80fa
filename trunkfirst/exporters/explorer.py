"""The interactive explorer: one HTML page that computes an operator in the browser, without a network."""

import base64
import dataclasses as dc
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from ..errors import UsageError
from ..files.text_files import fill_template, read_json, read_resource
from ..intervals import LEVELS, Intervals
from ..linear.orthonormalise import relative_errors
from ..networks.operator import Operator
from ..training_summary import load_run
from .explorer_data import (
    Controls,
    Drawing,
    Group,
    Sample,
    Table,
    Tested,
    make_controls,
    make_drawing,
    make_table,
    read_tested,
)
from .graph import Graph, to_javascript
from .jaxpr import trace

_SCRIPTS = ("model.js", "picture.js", "controls.js", "page.js")
# What the page needs to recognise outliers.
_NOVELTY = ("centre", "spread", "matrix", "inverse", "location", "scale")
# More makes browsers slow.
_MOST_MEGABYTES = 20
_LEVEL = 0.9
_TYPES = {"f8": "<f8", "f4": "<f4", "i8": "<i4", "u1": "u1"}


def explorer_page(folder: Path) -> bytes:
    """The page of a run folder, as UTF-8 HTML that needs no other file and no network.

    Raises `UsageError` for a folder that is not a run and for an operator too large for a page, and
    `CorruptFileError` for damaged files.
    """
    if not (folder / "training.npz").is_file():
        raise UsageError(
            f"{folder} is not a run folder: the explorer needs training.npz, which `run` and `fit` write"
        )
    operator, summary = load_run(folder)
    graph = trace(operator)
    _check_size(graph)
    tested = read_tested(folder, summary.points, graph.sensors)
    controls = make_controls(operator, summary.sensors, tested.number_names)
    table = make_table(operator, summary.points, controls.inputs(controls.seen))
    metrics = read_json(folder / "metrics.json") if (folder / "metrics.json").is_file() else {}
    script = "\n".join([to_javascript(graph), *(read_resource(f"exporters/page/{name}") for name in _SCRIPTS)])
    return _render(
        title=str(metrics.get("problem") or folder.name),
        lead=_lead(metrics),
        script=script,
        content=_content(operator, summary.points, tested, controls, table, metrics),
    ).encode()


def _check_size(graph: Graph) -> None:
    """Numbers are 8 bytes in base64, 4 letters for 3 bytes."""
    megabytes = sum(array.size for array in graph.constants.values()) * 8 * 4 / 3 / 1e6
    if megabytes > _MOST_MEGABYTES:
        raise UsageError(
            f"the explorer would have {megabytes:,.0f} MB, more than the {_MOST_MEGABYTES} MB that browsers open "
            "quickly; export to ONNX or NumPy (--to onnx, --to numpy), or fit with fewer functions "
            "(--set trunk.kind=modes --set trunk.width=...)"
        )


def _lead(metrics: dict[str, Any]) -> str:
    """The number of training samples and the test error, if `metrics.json` has them."""
    samples, test = metrics.get("samples") or {}, metrics.get("test") or {}
    parts = [f"trained on {samples['train']:,} samples"] if samples.get("train") else []
    if samples.get("test") and test.get("mean_relative_l2") is not None:
        parts.append(f"mean relative error on {samples['test']:,} test samples: {test['mean_relative_l2']:.1e}")
    return "; ".join(parts).capitalize() + "." if parts else ""


def _content(
    operator: Operator,
    all_points: np.ndarray,
    tested: Tested,
    controls: Controls,
    table: Table,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    """What the page needs besides the operator, for JSON."""
    points = all_points[table.kept]
    is_whole = len(points) == len(all_points)
    domain = operator.domain
    drawing = make_drawing(points, tested.triangles if is_whole else None, domain.names_with_units)
    known = domain.novelty
    assert known is not None  # the controls were made of it
    return {
        "groups": [_group(group, all_points, drawing if is_whole else None) for group in controls.groups],
        "base": _packed(controls.base),
        "shapes": _packed(controls.shapes),
        "seen": _packed(controls.seen),
        "novelty": {
            **{name: _packed(getattr(known, name)) for name in _NOVELTY},
            "near": known.seen.shape[1],
            "limit": known.limit,
        },
        "points": _packed(points),
        "drawing": _drawn(drawing),
        "table": _packed(table.functions),
        "output": {"offset": table.offset, "scale": table.scale.tolist(), "isPositive": table.is_positive},
        "ranges": table.ranges.tolist(),
        "channels": _channel_names(operator, metrics),
        "interval": _interval(domain.intervals, table),
        "samples": [_sample(sample, controls, table) for sample in tested.samples],
        "notes": [
            *filter(None, [drawing.remark, tested.reason, _left_out(operator, tested, controls, points)]),
            *([] if is_whole else [f"Drawn at {len(points):,} of {len(all_points):,} points."]),
        ],
        "colours": {"field": _colours("viridis"), "error": _colours("cividis")},
    }


def _interval(intervals: Intervals | None, table: Table) -> dict[str, Any] | None:
    """Half the width of the pointwise interval of 90 % at the points that are drawn, for each channel."""
    if intervals is None or not np.isfinite(half := intervals.pointwise[LEVELS.index(_LEVEL)]).all():
        return None
    rows = half.reshape(len(half), -1)[table.kept].T.astype(np.float32)
    return {"level": f"{_LEVEL:.0%}", "half": _packed(rows)}


def _channel_names(operator: Operator, metrics: dict[str, Any]) -> list[str]:
    domain = operator.domain
    if domain.channel_names:
        return [domain.with_unit(name) for name in domain.channel_names]
    if operator.channels is None:
        return ["output"]
    named = list((metrics.get("test") or {}).get("channels") or {})
    return named if len(named) == operator.channels else [f"output {k + 1}" for k in range(operator.channels)]


def _group(group: Group, points: np.ndarray, drawing: Drawing | None) -> dict[str, Any]:
    """A group with the picture of its function."""
    places, first, last = group.sensors, group.columns.start, group.columns.stop
    if not group.is_function:
        drawn = None
    elif places is not None and drawing is not None and np.array_equal(places, points):
        drawn = "same"
    elif places is not None and places.shape[1] <= 2:
        drawn = _drawn(make_drawing(places))
    else:  # without coordinates, or with too many: by number
        drawn = _drawn(Drawing("curve", ("sensor", ""), np.arange(1.0, 1 + last - first)[:, None]))
    sliders = [dc.asdict(slider) for slider in group.sliders]
    return {"name": group.name, "first": first, "last": last, "sliders": sliders, "drawing": drawn}


def _drawn(drawing: Drawing) -> dict[str, Any]:
    return {
        "kind": drawing.kind,
        "axes": drawing.axes,
        "places": _packed(drawing.places.astype(np.float32)),
        "triangles": _packed(drawing.triangles),
    }


def _sample(sample: Sample, controls: Controls, table: Table) -> dict[str, Any]:
    return {
        "name": sample.name,
        "inputs": _packed(sample.inputs),
        "values": controls.values(sample.inputs[None])[0].tolist(),
        "truths": {channel: _packed(truth[table.kept]) for channel, truth in sample.truths.items()},
    }


def _left_out(operator: Operator, tested: Tested, controls: Controls, points: np.ndarray) -> str:
    """The error of restricting an input function to shapes that have a slider, measured on the test samples."""
    if not tested.samples or not any(group.is_function for group in controls.groups):
        return ""
    inputs = np.stack([sample.inputs for sample in tested.samples])
    exact, shaped = (
        operator.values_at(x, points).reshape(len(x), -1)
        for x in (inputs, controls.inputs(controls.values(inputs)))
    )
    change = float(relative_errors(shaped, exact).max())
    return (
        "The sliders change an input along its main shapes and leave out small details, which changes the "
        f"predictions of the test samples by up to {change:.1e} (relative). A chosen test sample is used in full."
    )


def _packed(array: Float[np.ndarray, "..."] | np.ndarray) -> dict[str, Any]:
    """An array as base64; indices in 32 bits."""
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    content = np.ascontiguousarray(array, _TYPES[kind]).tobytes()
    return {"shape": array.shape, "type": _TYPES[kind][-2:], "bytes": base64.b64encode(content).decode()}


def _colours(name: str) -> dict[str, Any]:
    """256 colours, red, green and blue."""
    import matplotlib as mpl

    return _packed((mpl.colormaps[name](np.arange(256))[:, :3] * 255).round().astype(np.uint8))


def _render(*, title: str, lead: str, script: str, content: dict[str, Any]) -> str:
    """The filled template. Names from the data are escaped by it, or are in JSON without any `<`."""
    style = read_resource("exporters/page/page.css")
    return fill_template(
        "exporters/page/page.html",
        title=title,
        lead=lead,
        style=Markup(style),  # noqa: S704
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704
        script_hash=_hash(script),
        content=Markup(json.dumps(content, allow_nan=False).replace("<", "\\u003c")),  # noqa: S704
    )


def _hash(text: str) -> str:
    """The hash by which the page's Content-Security-Policy admits its own script and style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

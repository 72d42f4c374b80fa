"""The server: right answers, its document, and damaged requests, asked without a socket."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import INPUTS, NPZ, POINTS, as_json, npz

from trunkfirst.training_summary import read_summary

pytest.importorskip("starlette", reason="the server needs the extra serve")
pytest.importorskip("uvicorn", reason="the server needs the extra serve")

from trunkfirst.networks.operator import Operator
from trunkfirst.serve.app import make_app
from trunkfirst.serve.predictor import json_of
from trunkfirst.serve.requests import Limits

RNG = np.random.default_rng(1)


@pytest.fixture(scope="module")
def operator(served_run: Path) -> Operator:
    from trunkfirst.networks.operator import load

    return load(served_run)


# -- answers


def test_predictions_are_those_of_the_operator(ask: Any, operator: Operator):
    expected = operator.predict(INPUTS, POINTS)
    status, headers, body = ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))
    found = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    np.testing.assert_allclose(found["outputs"], expected, rtol=1e-13)
    assert found["is_outlier"] == [False] * 5
    assert found["familiar"] == [True] * 5
    by_name = {"inputs": as_json(g=INPUTS[:, 1:], f=INPUTS[:, :1]), "points": POINTS.tolist()}
    assert json.loads(ask("POST", "/predict", by_name)[2])["outputs"] == found["outputs"]


def test_npz_goes_in_and_out(ask: Any, operator: Operator):
    expected = operator.predict(INPUTS, POINTS)
    for arrays in ({"inputs": INPUTS}, {"inputs.f": INPUTS[:, :1], "inputs.g": INPUTS[:, 1:]}):
        status, headers, body = ask("POST", "/predict", npz(points=POINTS, **arrays), NPZ)
        assert (status, headers["content-type"]) == (200, "application/x-npz")
        with np.load(io.BytesIO(body)) as found:
            np.testing.assert_allclose(found["outputs"], expected, rtol=1e-13)
            assert not found["is_outlier"].any()
            assert found["familiar"].all()
            assert found["half_width"].shape == (7,)
            assert found["level"] == 0.9


def test_without_points_the_training_points_are_meant(ask: Any, operator: Operator):
    points = np.asarray(json.loads(ask("GET", "/points")[2])["points"])
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS))[2])
    np.testing.assert_allclose(found["outputs"], operator.predict(INPUTS, points), rtol=1e-13)


def test_intervals_are_those_of_the_nearest_training_points(ask: Any, served_run: Path):

    known = read_summary(served_run).intervals
    assert known is not None
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))[2])["interval"]
    nearest = np.linalg.norm(POINTS[:, None] - known.points, axis=2).argmin(axis=1)
    assert found == {"level": 0.9, "half_width": known.pointwise[1][nearest].tolist()}


@pytest.mark.parametrize("value", [9.0, 1e200, 1.7e308])
def test_outliers_are_marked(ask: Any, value: float):
    status, _, body = ask("POST", "/predict", as_json(inputs=[[1.5, 1.5, 1.5], [1.5, value, 1.5]]))
    assert status == 200
    assert json.loads(body)["is_outlier"] == [False, True]
    assert json.loads(body)["familiar"] == [True, False]


@pytest.mark.parametrize("x", [5.0, 1e6, 1e300])
def test_points_outside_the_domain_are_refused_with_a_code(ask: Any, x: float):
    """They were answered with the interval of the nearest training point."""
    points = [[0.0, 0.0], [x, 0.5]]
    status, _, body = ask("POST", "/predict", as_json(inputs=INPUTS, points=points))
    found = json.loads(body)
    assert (status, found["code"]) == (422, "outside_domain")
    assert "1 of 2 lie outside the training domain; the first is points[1]" in found["error"]
    assert '"extrapolate": true' in found["error"]


def test_extrapolation_is_marked_and_has_no_interval(ask: Any):
    points = [[0.0, 0.0], [5.0, 0.5]]
    status, _, body = ask("POST", "/predict", as_json(inputs=INPUTS, points=points) | {"extrapolate": True})
    found = json.loads(body)
    assert (status, found["is_extrapolated"]) == (200, [False, True])
    assert found["interval"]["half_width"][0] > 0
    assert found["interval"]["half_width"][1] is None
    _, _, body = ask("POST", "/predict", npz(inputs=INPUTS, points=points, extrapolate=True), NPZ)
    with np.load(io.BytesIO(body)) as arrays:
        assert np.isnan(arrays["half_width"]).tolist() == arrays["is_extrapolated"].tolist() == [False, True]
    for value in (1, "yes", None):
        assert ask("POST", "/predict", as_json(inputs=INPUTS) | {"extrapolate": value})[0] == 422


def test_channels_have_their_axis(server_bench: Any, ask: Any, tmp_path: Path):
    operator = server_bench.make_run(tmp_path, channels=2)
    other = make_app(tmp_path, limits=Limits())
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS), app=other)[2])
    np.testing.assert_allclose(found["outputs"], operator.predict(INPUTS, POINTS), rtol=1e-13)
    assert np.shape(found["interval"]["half_width"]) == (7, 2)


def test_long_answers_are_the_same_text(server_bench: Any):
    for shape in ((3, 5000), (9001,), (700, 3, 4)):
        array = RNG.normal(size=shape)
        assert json_of(array) == json.dumps(array.tolist())


def test_new_sizes_compile_nothing(app: Any, ask: Any):
    import jax
    import jax.numpy as jnp

    before = app.metrics.compilations
    for samples, points in RNG.integers(1, 60, (50, 2)):
        inputs, at = RNG.uniform(1, 2, (samples, 3)), RNG.uniform(-1, 1, (points, 2))
        found = json.loads(ask("POST", "/predict", as_json(inputs=inputs, points=at))[2])
        assert np.shape(found["outputs"]) == (samples, points)
    assert app.metrics.compilations == before
    jax.jit(lambda x: 3.25 * x)(jnp.ones(3))  # the count would have noticed
    assert app.metrics.compilations > before


def test_other_paths(ask: Any):
    assert ask("GET", "/healthz")[::2] == (200, b'{"status": "ok"}')
    status, headers, page = ask("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<html" in page
    ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))
    text = ask("GET", "/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['trunkfirst_requests_total{path="/predict",status="200"}']) >= 1
    assert int(values["trunkfirst_points_predicted_total"]) >= 35
    assert values['trunkfirst_predict_seconds_bucket{le="+Inf"}'] == values["trunkfirst_predict_seconds_count"]


# -- the document


@pytest.mark.filterwarnings("ignore")
def test_document_and_server_agree(app: Any, served_run: Path):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import CHECKS

    unguarded = make_app(served_run, limits=Limits(), is_local=False)  # schemathesis sends its own Host header
    schema = schemathesis.openapi.from_asgi("/openapi.json", unguarded)
    quiet = settings(
        max_examples=8,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    # A logarithm has a domain and two inputs must have equally many rows, which no schema says.
    checks = [check for check in CHECKS.get_all() if check.__name__ != "positive_data_acceptance"]
    seen: set[int] = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        # Where nothing is sent, nothing can be wrong with it.
        modes = (
            schemathesis.GenerationMode if operation.method == "post" else [schemathesis.GenerationMode.POSITIVE]
        )
        for mode in modes:

            @quiet
            @given(case=operation.as_strategy(generation_mode=mode))
            def run(case: Any) -> None:
                response = case.call()
                seen.add(response.status_code)
                case.validate_response(response, checks=checks)

            run()
    assert {200, 422} <= seen
    assert max(seen) < 500


# -- damaged requests


@pytest.mark.parametrize("kind", ["JSON, bytes", "JSON, values", "npz", "heads"])
def test_damaged_requests_are_answered(app: Any, server_bench: Any, kind: str):
    found = server_bench.fuzz(app, server_bench.KINDS[kind], 200, seed=1)
    assert found.faults == []
    assert found.statuses.total() == 200
    assert len(found.statuses) > 1

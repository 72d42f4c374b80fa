"""The explorer page: its arithmetic in Node, from the file as it was written, and the page in a real browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from explorer_browser import Browser, browser_at
from explorer_runs import HOSTILE, MAKERS, SQUARE, write_run
from own_problems import Call

import trunkfirst
from trunkfirst.errors import CorruptFileError, UsageError
from trunkfirst.exporters import explorer, explorer_data
from trunkfirst.exporters.explorer import explorer_page
from trunkfirst.exporters.formats import export
from trunkfirst.files.integrity import write_manifest
from trunkfirst.files.npz import read_npz, write_npz
from trunkfirst.networks.operator import Operator, load
from trunkfirst.training_summary import read_summary


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder and its page for each of the makers."""
    place = tmp_path_factory.mktemp("runs")
    for name, maker in MAKERS.items():
        write_run(place / name, *maker())
        export(place / name, "html", place / f"{name}.html")
    return place


def content_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', page.read_text("utf-8"))
    assert found is not None
    return json.loads(found[1])


def unpack(packed: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(packed["bytes"]), f"<{packed['type']}")
    return raw.reshape(packed["shape"])


# -- the arithmetic, in Node

HARNESS = """
const content = JSON.parse(require("fs").readFileSync(process.argv[2], "utf8"));
const asked = JSON.parse(require("fs").readFileSync(process.argv[3], "utf8"));
const model = makeModel(content);
const found = asked.map(({ values, point }) => {
  const inputs = model.inputsOf(values), coefficients = model.coefficientsOf(inputs);
  const channels = content.channels.map((_, channel) => [
    [...model.fieldOf(coefficients, channel)], model.valueAt(coefficients, point, channel)]);
  return { inputs: [...inputs], channels, outlierScore: model.outlierScore(inputs) };
});
console.log(JSON.stringify(found));
"""


def run_node(page: Path, folder: Path, asked: list[dict[str, Any]], harness: str = HARNESS) -> Any:
    """What the script of a page computes."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    found = re.search(r"<script>(.*?)</script>", page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    (folder / "page.js").write_text(found[1] + harness, encoding="utf-8")
    (folder / "content.json").write_text(json.dumps(content_of(page)), encoding="utf-8")
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    command = [node, str(folder / "page.js"), str(folder / "content.json"), str(folder / "asked.json")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(page: Path, operator: Operator, points: np.ndarray, folder: Path, most: float) -> None:
    """Fields and single values of the page against `operator.predict`."""
    content = content_of(page)
    values = unpack(content["seen"])[::5] * 1.01
    places = points[: len(values)] * 0.9
    asked = [{"values": v.tolist(), "point": p.tolist()} for v, p in zip(values, places, strict=True)]
    found = run_node(page, folder, asked)
    inputs = np.array([each["inputs"] for each in found])
    assert np.allclose(inputs, unpack(content["base"]) + values @ unpack(content["shapes"]), rtol=0, atol=1e-12)
    expected, alone = (operator.predict(inputs, at).reshape(len(inputs), len(at), -1) for at in (points, places))
    for k, each in enumerate(found):
        assert len(each["channels"]) == expected.shape[2]
        for channel, (field, value) in enumerate(each["channels"]):
            size = np.abs(expected[k, :, channel]).max()
            assert np.abs(np.array(field) - expected[k, :, channel]).max() / size < most
            assert abs(value - alone[k, k, channel]) / size < most


@pytest.mark.parametrize("name", MAKERS)
def test_node_computes_what_python_does(runs: Path, tmp_path: Path, name: str):
    points = read_npz(runs / name / "training.npz")["points"]
    compare(runs / f"{name}.html", load(runs / name), points, tmp_path, 1e-12)


def test_the_command(runs: Path, tmp_path: Path, call: Call):
    out = tmp_path / "page.html"
    code, printed, err = call("export", runs / "space", "--to", "html", "--out", out, "--json")
    assert (code, err) == (0, "")
    assert json.loads(printed)["bytes"] == out.stat().st_size
    assert out.read_bytes() == (runs / "space.html").read_bytes()


def test_large_tables_are_rounded_or_thinned(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    operator = load(runs / "numbers")
    points = read_npz(runs / "numbers" / "training.npz")["points"]
    monkeypatch.setattr(explorer_data, "_MOST_BYTES", 81 * 5 * 4)
    page = tmp_path / "page.html"
    export(runs / "numbers", "html", page)
    assert content_of(page)["table"]["type"] == "f4"
    compare(page, operator, points, tmp_path, 1e-5)
    monkeypatch.setattr(explorer_data, "MOST_ERROR", 0.0)
    export(runs / "numbers", "html", page)
    content = content_of(page)
    assert content["table"]["type"] == "f8"
    assert "Drawn at 40 of 81 points." in content["notes"]
    compare(page, operator, unpack(content["points"]), tmp_path, 1e-12)


def test_outliers_are_those_of_python(runs: Path, tmp_path: Path):
    known = read_summary(runs / "space").novelty
    assert known is not None
    values = np.array([[1.5, 1.5], [1.1, 1.9], [9.0, 1.5], [1.5, -4.0]])
    found = run_node(runs / "space.html", tmp_path, [{"values": v.tolist(), "point": [0, 0, 0]} for v in values])
    assert (
        [each["outlierScore"] > 1 for each in found]
        == known.is_outlier(values).tolist()
        == [False, False, True, True]
    )
    assert [each["outlierScore"] for each in found] == pytest.approx(known.scores(values) / known.limit, abs=1e-9)


# -- what is in the file


def test_groups_and_sliders(runs: Path):
    content = content_of(runs / "functions.html")
    assert [group["name"] for group in content["groups"]] == [HOSTILE, "g"]
    assert [len(group["sliders"]) for group in content["groups"]] == [4, 1]  # four cosines make the functions
    memory = read_summary(runs / "functions")
    assert memory.novelty is not None
    trained = memory.novelty.centre + memory.novelty.seen @ np.linalg.pinv(memory.novelty.matrix)
    reached = unpack(content["base"]) + unpack(content["seen"]) @ unpack(content["shapes"])
    assert np.abs(reached - trained).max() < 1e-10
    slider = content["groups"][1]["sliders"][0]
    assert (slider["low"], slider["high"]) == pytest.approx((trained[:, -1].min(), trained[:, -1].max()))
    (wide,) = content_of(runs / "logarithm.html")["groups"][0]["sliders"]
    assert wide["is_logarithmic"]
    assert wide["start"] > 0
    assert [s["name"] for s in content_of(runs / "numbers.html")["groups"][0]["sliders"]] == ["a", "b", HOSTILE]


def test_samples_are_those_of_the_evaluation(runs: Path):
    arrays = read_npz(runs / "numbers" / "evaluation.npz")
    example, worst, *others = content_of(runs / "numbers.html")["samples"]
    assert len(others) == 2
    assert np.array_equal(unpack(example["inputs"]), arrays["example_input"])
    assert np.array_equal(unpack(example["truths"]["0"]), arrays["example_target"])
    assert np.array_equal(unpack(worst["truths"]["0"]), arrays["worst_targets"][0])
    labels = [arrays[f"labels.{name}"][arrays["worst_indices"][0]] for name in ("a", "b", HOSTILE)]
    assert unpack(worst["inputs"]).tolist() == labels
    example, worst, *others = content_of(runs / "functions.html")["samples"]
    assert len(others) == 2
    assert [unpack(example["truths"][channel]).shape for channel in "01"] == [(40,), (40,)]
    arrays = read_npz(runs / "functions" / "evaluation.npz")
    assert np.array_equal(unpack(worst["inputs"]), arrays["worst_inputs"][0])


def test_the_file_is_closed(runs: Path):
    """Nothing outside is named, and the policy lets no script run but the page's own."""
    text = (runs / "functions.html").read_text("utf-8")
    assert not re.search(r"https?:|//cdn|@import|url\(", text)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert HOSTILE not in text


def test_refusals(runs: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"is not a run folder: the explorer needs training\.npz"):
        explorer_page(runs / "numbers" / "model")
    with pytest.raises(UsageError, match="give the folder of a run"):
        export(load(runs / "numbers"), "html", tmp_path / "page.html")
    with pytest.raises(UsageError, match="leave precision out"):
        export(runs / "numbers", "html", tmp_path / "page.html", precision="single")
    folder = tmp_path / "broken"
    shutil.copytree(runs / "numbers", folder)
    arrays = read_npz(folder / "evaluation.npz")
    for changed in ({"triangles": arrays["triangles"] + 9}, {"example_input": arrays["example_input"][:2]}):
        write_npz(folder / "evaluation.npz", arrays | changed)
        write_manifest(folder)
        with pytest.raises(CorruptFileError, match="Evaluate the run again"):
            explorer_page(folder)


def test_an_operator_too_large_for_a_page(runs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(explorer, "_MOST_MEGABYTES", 0.001)
    with pytest.raises(UsageError, match=r"would have .* MB, more than .*export to ONNX or NumPy.*trunk\.width"):
        explorer_page(runs / "numbers")


def test_without_test_samples_it_says_so(tmp_path: Path):
    write_run(tmp_path / "run", *MAKERS["logarithm"](), tested=False)
    export(tmp_path / "run", "html", tmp_path / "page.html")
    content = content_of(tmp_path / "page.html")
    assert content["samples"] == []
    assert any(note.startswith("The run has no test samples") for note in content["notes"])


# -- the page, in Chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser_at(tmp_path_factory.mktemp("profile")) as found:
        yield found


def predicted(runs: Path, values: list[float], place: list[float]) -> float:
    return float(load(runs / "numbers").predict(np.array([values]), np.array([place]))[0, 0])


def shown(browser: Browser) -> float:
    """The number under the pointer."""
    found = re.search(r"predicted (\S+?)(,|$)", browser.text("#readout"))
    assert found is not None, browser.text("#readout")
    return float(found[1])


def test_a_slider_moved_by_keys(runs: Path, browser: Browser):
    browser.open(runs / "numbers.html", "#at=0.7,0.25")
    sample = unpack(content_of(runs / "numbers.html")["samples"][0]["inputs"]).tolist()
    assert shown(browser) == pytest.approx(predicted(runs, sample, [0.7, 0.25]), rel=1e-5)
    browser.find("#slider-1").send_keys("\ue014" * 12)  # arrow to the right
    browser.wait(f"Math.abs(explorer.state.values[1] - {sample[1]}) > 0.01 && location.hash.startsWith('#values')")
    moved = browser.ask("explorer.state.values")
    assert moved[1] > sample[1]
    assert [moved[0], moved[2]] == [sample[0], sample[2]]
    assert shown(browser) == pytest.approx(predicted(runs, moved, [0.7, 0.25]), rel=1e-5)
    assert browser.text("#sample option:checked") == "none: the sliders"
    assert browser.ask("document.querySelectorAll('input[type=number]')[1].value") == f"{moved[1]:.6g}"
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    address = browser.ask("location.hash")
    browser.open(runs / "numbers.html", address)
    assert browser.ask("explorer.state.values") == moved
    assert browser.errors() == []


def test_the_address_is_the_state(runs: Path, browser: Browser):
    browser.open(runs / "numbers.html")
    browser.driver.execute_script("location.hash = '#values=1,1.5,2.5&steady=1&at=1,0'")
    browser.wait("explorer.state.values[2] === 2.5 && document.getElementById('steady').checked")
    browser.wait("document.getElementById('slider-2-words').textContent.startsWith('outside the training range')")
    assert browser.text("#status").startswith(f"Outside the training range ({HOSTILE})")
    assert shown(browser) == pytest.approx(predicted(runs, [1, 1.5, 2.5], [1, 0]), rel=1e-5)
    browser.find("#sample").send_keys("\ue015")  # arrow down: the first test sample
    browser.wait("location.hash.startsWith('#sample=0')")
    assert browser.text("#status") == "Inside the training range."
    assert "true" in browser.text("#readout")
    for nonsense in ("#values=1,x,2&sample=77", "#values=1,2&channel=-1&at=nowhere", "#%E0%A4%A"):
        browser.open(runs / "numbers.html", nonsense)
        assert browser.text("#status") == "Inside the training range."
    assert browser.errors() == []


def test_value_and_colour_under_the_pointer(runs: Path, browser: Browser):
    browser.open(runs / "numbers.html", "#values=1,1.5,0.8")
    browser.point_at("#prediction canvas", 150, 200)
    browser.wait(
        "explorer.state.probe !== null && document.getElementById('readout').textContent.includes('predicted')"
    )
    place = browser.ask("explorer.state.probe")
    assert shown(browser) == pytest.approx(predicted(runs, [1, 1.5, 0.8], place), rel=1e-5)
    browser.open(runs / "numbers.html", "#values=1,1.5,0.8")
    field = load(runs / "numbers").predict(np.array([[1, 1.5, 0.8]]), SQUARE)[0]
    shares = (field - field.min()) / np.ptp(field)
    pixels = browser.colours("#prediction canvas")
    left, right, top, bottom = 52, pixels.shape[1] - 12, 10, pixels.shape[0] - 34
    inner = (SQUARE[:, 0] % 2 > 0) & (np.abs(SQUARE[:, 1]) < 1)
    across = (left + SQUARE[:, 0] / 2 * (right - left)).astype(int)
    down = (bottom - (SQUARE[:, 1] + 1) / 2 * (bottom - top)).astype(int)
    expected = np.asarray(mpl.colormaps["viridis"](shares))[:, :3] * 255
    assert np.abs(pixels[down, across, :3] - expected)[inner].max() < 8


def test_no_value_is_said_and_passes(runs: Path, browser: Browser):
    browser.open(runs / "logarithm.html", "#values=-1&at=0.5")
    assert "No value here" in browser.text("#status")
    assert browser.text("#readout").endswith("no value here")
    assert (
        browser.ask("document.querySelector('#prediction canvas').ariaLabel") == "Predicted field, no value here"
    )
    browser.driver.execute_script("location.hash = '#values=1&at=0.5'")
    browser.wait("document.getElementById('status').textContent === 'Inside the training range.'")
    expected = load(runs / "logarithm").predict(np.ones((1, 1)), np.array([[0.5]]))[0, 0]
    assert shown(browser) == pytest.approx(expected, rel=1e-5)
    assert browser.errors() == []


def test_a_phone_in_the_dark(runs: Path, browser: Browser):
    for name in MAKERS:
        browser.open(runs / f"{name}.html", width=390, height=844, dark=True)
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        lefts = browser.ask("[...document.querySelectorAll('figure:not([hidden])')].map(f => f.offsetLeft)")
        assert len(set(lefts)) == 1
        assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert browser.errors() == []
    browser.open(runs / "numbers.html")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        len(set(browser.ask("[...document.querySelectorAll('figure:not([hidden])')].map(f => f.offsetLeft)"))) == 3
    )


def test_names_from_data_stay_words(runs: Path, browser: Browser):
    browser.open(runs / "functions.html", "#channel=1&at=1,0")
    assert browser.ask("document.title").startswith(HOSTILE)
    assert browser.text("legend") == HOSTILE
    assert browser.text("h1") == HOSTILE
    assert browser.text("#channel option") == HOSTILE
    assert "predicted v " in browser.text("#readout")
    assert browser.ask("document.querySelectorAll('b').length") == 0
    browser.driver.execute_script(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'var taken = 1'}))"
    )
    assert browser.ask("typeof taken") == "undefined"
    assert browser.ask("performance.getEntriesByType('resource').length") == 0
    assert all("Content Security Policy" in message for message in browser.errors())


def test_channels_shapes_and_training_inputs(runs: Path, browser: Browser):
    browser.open(runs / "functions.html")
    before = browser.ask("document.querySelector('#prediction canvas').ariaLabel")
    browser.find("#channel").send_keys("\ue015")
    browser.wait(f"document.querySelector('#prediction canvas').ariaLabel !== {json.dumps(before)}")
    browser.find("#seen").send_keys("\ue010")  # the end: the training input with most of the first shape
    browser.wait("explorer.state.sample === null")
    seen = unpack(content_of(runs / "functions.html")["seen"])
    assert browser.ask("explorer.state.values") == pytest.approx(seen[seen[:, 0].argmax()])
    browser.open(runs / "space.html", "#at=0,0")
    assert "drawn as dots" in browser.text("#notes")
    assert browser.errors() == []


# -- names, grids and intervals


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fitted operators with names and units, on a grid in space and time, and on a line."""
    place, rng = tmp_path_factory.mktemp("named"), np.random.default_rng(0)
    x, t = np.linspace(0, 1, 9), np.linspace(0, 2, 5) ** 2
    k, a = np.geomspace(0.01, 1, 40), rng.uniform(1, 1000, 40)
    rng.shuffle(k)
    u = a[:, None, None] * np.exp(-k[:, None, None] * t) * np.sin(np.pi * x)[:, None]
    places = np.stack(np.meshgrid(x, t, indexing="ij"), axis=-1).reshape(-1, 2)
    inputs = {"k": k[:, None], "a": a[:, None]}
    names = {"coordinate_names": ("x", "t"), "channel_names": ("T", "q"), "units": {"t": "s", "q": "W"}}
    grid = trunkfirst.OperatorData(inputs, places, np.stack([u, u**2], axis=-1).reshape(40, -1, 2), **names)
    line = trunkfirst.OperatorData(inputs, x[:, None], u[:, :, 1], coordinate_names=("depth",), output_name="heat")
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="standardise", weights="none")
    for name, data in (("grid", grid), ("line", line)):
        trunkfirst.fit(data, method=method, intervals=True, test_share=0.1, out=place / name)
        export(place / name, "html", place / f"{name}.html")
    return place


def test_names_scales_and_intervals_are_those_of_the_data(named: Path):
    content = content_of(named / "grid.html")
    assert content["drawing"]["kind"] == "grid"
    assert content["drawing"]["axes"] == ["x", "t [s]"]
    assert content["channels"] == ["T", "q [W]"]
    # Both range over decades, but only one was sampled that way.
    sliders = [group["sliders"][0] for group in content["groups"]]
    assert [(each["name"], each["is_logarithmic"]) for each in sliders] == [("k", True), ("a", False)]
    intervals = read_summary(named / "grid").intervals
    assert intervals is not None
    assert content["interval"]["level"] == "90%"
    np.testing.assert_allclose(unpack(content["interval"]["half"]), intervals.pointwise[1].T, rtol=1e-6)
    assert content_of(named / "line.html")["channels"] == ["heat"]


def test_a_grid_is_drawn_without_gaps(named: Path, browser: Browser):
    browser.open(named / "grid.html", "#values=0.1,300")
    pixels = browser.colours("#prediction canvas")
    inner = pixels[12:-36, 54:-14]
    assert (inner[..., 3] == 255).all()  # corners too
    steps = np.abs(np.diff(inner[..., :3].astype(int), axis=1)).max()
    assert steps < 16  # no facets: neighbouring pixels have neighbouring colours
    browser.open(named / "grid.html", "#values=0.1,300&at=0.5,2")
    assert browser.text("#prediction figcaption") == "Predicted T"
    text = browser.text("#readout")
    assert text.startswith("x = 0.5, t [s] = 2: predicted T ")
    operator = load(named / "grid")
    expected = operator.predict(np.array([[0.1, 300.0]]), np.array([[0.5, 2.0]]))[0, 0, 0]
    found = re.search(r"predicted T (\S+) ± (\S+) \(90%\)", text)
    assert found is not None
    assert float(found[1]) == pytest.approx(expected, rel=1e-5)
    assert float(found[2]) > 0
    assert browser.text("#interval figcaption") == "Half width of the 90% interval"
    browser.find("#channel").send_keys("\ue015")
    browser.wait("document.querySelector('#prediction figcaption').textContent === 'Predicted q [W]'")
    assert browser.errors() == []


def test_a_curve_has_a_band(named: Path, browser: Browser):
    browser.open(named / "line.html", "#values=0.1,300&at=0.5")
    assert browser.text("#prediction figcaption") == "Predicted heat, with its 90% interval"
    assert browser.text("#readout").startswith("depth = 0.5: predicted ")
    assert "±" in browser.text("#readout")
    pixels = browser.colours("#prediction canvas")[12:-36, 54:-14]
    is_band = (pixels[..., 3] > 40) & (pixels[..., 3] < 90)  # a quarter opaque
    assert is_band.sum() > 20
    assert browser.ask("document.getElementById('interval').hidden")
    assert browser.errors() == []

"""The code of a user passes a strict type checker."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
import numpy as np

import trunkfirst

rng = np.random.default_rng(0)
x, a = np.linspace(0, 1, 30), rng.normal(size=(40, 2))
data = trunkfirst.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([x, x**2]))
from_lists = trunkfirst.OperatorData([[1.0], [2.0]], [[0.0], [1.0]], [[1, 2], [3, 4]], point_weights=[1, 1])
function = trunkfirst.InputFunction(a, sensors=[[0.0], [1.0]], grid_shape=(2,))
named = trunkfirst.OperatorData({"f": function, "g": a}, x[:, None], data.outputs, labels={"beta": a[:, 0]})
split = trunkfirst.Split.random(data.samples, validation_share=0.1, test_share=0.1, seed=0)
for part in (data.take(slice(0, 30)), data.take([30, 31]), data.take(a[:, 0] > 0), data.take(split.train)):
    print(part, part.samples, part.outputs.mean(), part.flat_inputs.shape, part.inputs["input"].values[0])
axes = data.plot(2)

trunkfirst.write_data(named, "my.npz")
again = trunkfirst.read_data("my.npz", keys={"inputs.f": "inputs.f"})
print(again.outputs.shape, again.take(slice(3)).outputs, again.samples, again.channels, again.coordinate_names)
print(again.inputs["f"].sensors, again.points[0], again.point_weights, again.describe())
memory = trunkfirst.read_data({"inputs": a, "points": x, "outputs": data.outputs})
print(memory.labels, memory.reference_outputs, trunkfirst.check_data(memory).sentences[0])

scattered = trunkfirst.scattered_from_lists(a[:2], [x[:3, None], x[:2, None]], [x[:3], x[:2]], output_name="u")
sharded = trunkfirst.write_shards([data.take(slice(0, 20)), data.take(slice(20, 40))], "shards")
for block in sharded.without([0, 1]).blocks():
    print(block.samples, scattered.counts.sum(), scattered.mask.any())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "user.py").write_text(SCRIPT)
    settings = {"typeCheckingMode": "strict", "include": ["user.py"], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    return tmp_path / "user.py"


@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_user_code_has_no_type_errors(script: Path):
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    found = subprocess.run([*command, "-p", script.parent], capture_output=True, text=True, check=False)
    faults = [fault["message"] for fault in json.loads(found.stdout)["generalDiagnostics"]]
    assert faults == []
    assert json.loads(found.stdout)["summary"]["filesAnalyzed"] == 1


def test_the_same_code_runs(script: Path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import matplotlib; matplotlib.use('Agg'); import user"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=script.parent, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr

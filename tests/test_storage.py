"""An operator on disk: the same bits back, and damage noticed."""

import dataclasses as dc
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import fitted, has_same_bits, make_operator, network_of, waves

from trunkfirst.encoders import Identity, LinearProjection
from trunkfirst.errors import CorruptFileError, DataError, OutputNotWritableError
from trunkfirst.files.integrity import sha256_of, update_manifest, verify_manifest
from trunkfirst.inputs import fit_standardise
from trunkfirst.intervals import Intervals, fit_novelty
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.networks.training_domain import TrainingDomain

RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 2))
INTERVALS = Intervals(np.array([0.8, 0.9]), np.array([0.1, np.inf]), POINTS, np.ones((2, 5)))
EXTRAS = INTERVALS.arrays() | fit_novelty(INPUTS).arrays()


def with_encoder(encoder: str, **settings: Any) -> Operator:
    dtype = settings.get("dtype", np.float64)
    with jax.enable_x64(True):
        chosen = {
            "identity": Identity(),
            "standardise": fit_standardise(INPUTS.astype(dtype)),
            "coefficients": LinearProjection(jnp.asarray(RNG.normal(size=(3, 3)), dtype)),
        }[encoder]
    return make_operator(encoder=chosen, **settings)


@pytest.mark.parametrize(
    ("encoder", "stacked", "dtype"),
    [
        ("identity", True, jnp.float64),
        ("standardise", False, jnp.float64),
        ("coefficients", False, jnp.float64),
        ("standardise", False, jnp.float32),
    ],
)
def test_round_trip_to_the_bit(tmp_path: Path, encoder: str, stacked: bool, dtype: type):
    operator = with_encoder(encoder, transform=not stacked, stacked=stacked, dtype=dtype)
    assert save(operator, tmp_path / "a" / "model") == tmp_path / "a" / "model"
    back = load(tmp_path / "a")  # a run folder holds it in model/
    assert has_same_bits(operator, back)
    assert jax.tree.structure(operator) == jax.tree.structure(back)
    assert back.input_names == ("f", "g")
    assert np.array_equal(operator.predict(INPUTS, POINTS), back.predict(INPUTS, POINTS))


def test_round_trip_of_a_training_domain(tmp_path: Path):
    domain = TrainingDomain(
        points=POINTS,
        coordinate_names=("x", "y"),
        units={"x": "m", "f": "Pa"},
        sensors=(np.zeros((1, 1)), np.array([[0.0], [1.0]])),
        input_sizes=(1, 2),
        input_ranges=np.stack([INPUTS.min(axis=0), INPUTS.max(axis=0)]),
        extras=EXTRAS,
    )
    operator = dc.replace(make_operator(), domain=domain)
    back = load(save(operator, tmp_path))
    assert back.domain == domain
    assert isinstance(back.domain.points, np.ndarray)
    assert np.array_equal(back.predict(INPUTS), operator.predict(INPUTS, POINTS))


def test_an_operator_without_a_domain_is_described_as_by_version_0_1(tmp_path: Path):
    fields = json.loads((save(make_operator(), tmp_path) / "model.json").read_text())["operator"]["fields"]
    assert list(fields) == ["encoder", "branch", "trunk", "transform", "input_names", "output", "channels"]


def test_round_trip_of_a_fit(tmp_path: Path):
    operator = fitted("two-step").operator
    back = load(save(operator, tmp_path))
    data = waves()
    values = (o.predict(data.flat_inputs, data.points) for o in (operator, back))
    assert np.array_equal(*values)


def test_the_model_card_says_what_the_operator_knows(tmp_path: Path):
    """Names from data are text: they cannot make links, tables, HTML or code of their own."""
    domain = TrainingDomain(
        points=POINTS,
        coordinate_names=("x", "y"),
        channel_names=("T|<b>\n# `no`",),
        units={"T|<b>\n# `no`": "K"},
        input_sizes=(1, 2),
        input_ranges=np.array([[-1.5, 0.0, 2.0], [1.0, 3.0, 4.25]]),
        extras=EXTRAS,
    )
    operator = dc.replace(make_operator(), domain=domain)
    card = (operator.save(tmp_path, measured={"error [of] _us_": 1.25e-3}) / "README.md").read_text()
    assert r"| output | T\|\<b\> \# \`no\` (K) |" in card
    assert "1 value, in training from -1.5 to 1" in card
    assert "2 values, in training from 0 to 4.25" in card
    assert r"- error \[of\] \_us\_: 0.00125" in card
    assert "with probability 0.8: 0.1\n" in card
    assert "inf" not in card
    verify_manifest(tmp_path)


def test_a_model_card_may_be_edited_or_removed(tmp_path: Path):
    operator = make_operator()
    card = operator.save(tmp_path) / "README.md"
    card.write_text("Our own words.")
    assert np.array_equal(load(tmp_path).predict(INPUTS, POINTS), operator.predict(INPUTS, POINTS))
    operator.save(tmp_path)
    assert card.read_text() == "Our own words."
    verify_manifest(tmp_path)
    card.unlink()
    load(operator.save(tmp_path))
    assert "trunkfirst.load" in card.read_text()


def test_saving_twice_gives_the_same_bytes(tmp_path: Path):
    for name in ("a", "b"):
        save(make_operator(), tmp_path / name)
    for name in ("model.json", "model.safetensors", "README.md"):
        assert sha256_of(tmp_path / "a" / name) == sha256_of(tmp_path / "b" / name)


def test_a_place_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputNotWritableError):
        save(make_operator(), tmp_path / "file" / "model")


# -- damage


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(with_encoder("standardise"), tmp_path_factory.mktemp("model"))


def flip_byte(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def change(edit: Callable[[Any], None]) -> Callable[[Path], None]:
    """Damage that edits the header."""

    def damage(folder: Path) -> None:
        header = json.loads((folder / "model.json").read_text())
        edit(header)
        sign(folder, json.dumps(header))

    return damage


def sign(folder: Path, header: str) -> None:
    """Write a header with its checksum in the manifest."""
    (folder / "model.json").write_text(header)
    update_manifest(folder, "model.json")


def weight(header: Any) -> Any:
    return header["operator"]["fields"]["trunk"]["fields"]["network"]["fields"]["weights"][0]


def field_of(header: Any, name: str) -> Any:
    return header["operator"]["fields"][name]["fields"]


def set_domain(header: Any, part: str, **fields: Any) -> None:
    header["operator"]["fields"]["domain"] = {"part": part, "fields": fields}


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "flipped byte": (flip_byte, r"model\.safetensors is damaged"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    "no header": (lambda folder: (folder / "model.json").unlink(), r"model\.json is missing"),
    "no manifest": (lambda folder: (folder / "MANIFEST.sha256").unlink(), "MANIFEST.sha256 cannot be read"),
    "header by hand": (lambda folder: (folder / "model.json").write_text("{}"), r"model\.json is damaged"),
    "no JSON": (lambda folder: sign(folder, "{"), r"cannot read .*model\.json"),
    "not a header": (lambda folder: sign(folder, "[]"), "not a model of format"),
    "other format": (change(lambda h: h.update(format=99)), "not a model of format"),
    "no operator": (change(lambda h: h.pop("operator")), "does not describe an operator"),
    "another part": (
        change(lambda h: h.update(operator=h["operator"]["fields"]["trunk"])),
        "has no place there",
    ),
    "changed shape": (change(lambda h: weight(h).update(shape=[2, 4])), "has shape"),
    "changed type": (change(lambda h: weight(h).update(dtype="float32")), "and type"),
    "unknown array": (change(lambda h: weight(h).update(array="absent")), "absent"),
    "unknown part": (
        change(lambda h: h["operator"]["fields"]["trunk"].update(part="System")),
        "unknown part 'System'",
    ),
    "unknown field": (change(lambda h: field_of(h, "branch").update(more=1)), "more"),
    "missing field": (change(lambda h: field_of(h, "branch").pop("biases")), "biases"),
    "another part as domain": (change(lambda h: set_domain(h, "Identity")), "has no place there"),
    "domain of other sizes": (
        change(lambda h: set_domain(h, "TrainingDomain", input_sizes=[3])),
        "expected 2 entries",
    ),
    "units that are numbers": (
        change(lambda h: set_domain(h, "TrainingDomain", units={"mapping": {"x": 1}})),
        "has no place there",
    ),
    "unknown activation": (change(lambda h: field_of(h, "branch").update(activation="step")), "step"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_noticed(saved: Path, tmp_path: Path, name: str):
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    damage, words = DAMAGE[name]
    damage(folder)
    with pytest.raises(CorruptFileError, match=words):
        load(folder)


def test_a_sensor_that_was_constant_has_an_infinite_deviation(tmp_path: Path):
    with jax.enable_x64(True):
        encoder = fit_standardise(np.column_stack([INPUTS[:, :2], np.ones(len(INPUTS))]))
    assert np.isinf(encoder.deviation[2])
    assert has_same_bits(encoder, load(save(make_operator(encoder=encoder), tmp_path)).encoder)


def test_weights_that_are_not_numbers(tmp_path: Path):
    operator = make_operator()
    with jax.enable_x64(True):
        spoilt = jnp.full_like(network_of(operator).weights[0], jnp.nan)
        operator = eqx.tree_at(lambda o: o.trunk.network.weights[0], operator, spoilt)
    with pytest.raises(CorruptFileError, match="not finite numbers"):
        load(save(operator, tmp_path))


@pytest.mark.parametrize("name", ["familiarity.spread", "familiarity.matrix", "intervals.pointwise"])
def test_arrays_of_the_domain_that_do_not_belong_together(name: str):
    """In a folder that was signed again; predictions would fail later, or use the wrong numbers."""
    with pytest.raises((DataError, TypeError)):  # a TypeError where annotations are checked, as in tests
        dc.replace(make_operator(), domain=TrainingDomain(extras=EXTRAS | {name: EXTRAS[name][:-1]}))

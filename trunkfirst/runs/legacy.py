"""Configurations of version 0.1: sections `trunk`, `branch`, `loss`, ... beside a method by name."""

from typing import Any

from ..errors import SettingError

_OUTER = ("problem", "preset", "seed", "checkpoint_seconds", "devices", "data")
_ELEMENTWISE = ("log", "inverse", "inverse-root")
_BASES = ("legendre", "chebyshev", "fourier")


def is_legacy(values: dict[str, Any]) -> bool:
    """Whether these are all values of a configuration that version 0.1 wrote; a part of them says too little."""
    trunk = values.get("trunk")
    is_old = isinstance(trunk, dict) and "architecture" in trunk
    return is_old and isinstance(values.get("method"), str) and "loss" in values


def translate(old: dict[str, Any]) -> dict[str, Any]:
    """The same configuration in the present form.

    Raises:
        SettingError: where it is not what version 0.1 wrote.
    """
    try:
        return _translated(old)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SettingError(
            f"this looks like a configuration of version 0.1, but cannot be read as one: {error}"
        ) from error


def _translated(old: dict[str, Any]) -> dict[str, Any]:
    name, trunk, branch = old.get("method", "two-step"), dict(old.get("trunk", {})), dict(old.get("branch", {}))
    output, loss = dict(old.get("output", {})), dict(old.get("loss", {}))
    new = {key: old[key] for key in _OUTER if key in old}
    if "intervals" in output:
        new["intervals"] = output.pop("intervals")
    method: dict[str, Any] = {
        "inputs": _inputs(branch.pop("encoder", "auto")),
        "coordinates": {
            "rescale": trunk.pop("rescale", False),
            "periods": trunk.pop("periods", {}),
            "fourier": trunk.pop("fourier", 0),
        },
        "output": output,
        "weights": loss.get("weights", "relative"),
        "precision": old.get("precision", "double"),
    }
    p = loss.get("p", 2.0)
    steps = _monolithic if name.startswith("monolithic") else _two_step
    return new | {"method": method | steps(name, trunk, branch, p, old.get("orthonormalise", {}))}


def _two_step(
    name: str, trunk: dict[str, Any], branch: dict[str, Any], p: float, qr: dict[str, Any]
) -> dict[str, Any]:
    kind = qr.get("method", "qr")
    orthonormalise = "none" if name == "two-step-without-qr" else {**qr, "kind": kind}
    if isinstance(orthonormalise, dict):
        orthonormalise.pop("method", None)
    return {
        "kind": "two-step",
        "trunk": _trunk(trunk, p),
        "branch": _branch(branch),
        "orthonormalise": orthonormalise,
    }


def _monolithic(
    name: str, trunk: dict[str, Any], branch: dict[str, Any], p: float, qr: dict[str, Any]
) -> dict[str, Any]:
    del qr
    minimiser, iterations = _minimiser(trunk), trunk.get("iterations", 6000)
    method = {
        "kind": name,
        "trunk": _network(trunk),
        "branch": _network(branch, with_width=False) | _some(branch, "skip", "product", "stacked"),
        "minimiser": minimiser,
        "iterations": iterations,
    }
    if name == "monolithic-projected":
        return method | {"ridge": trunk.get("ridge", 1e-3)}
    return method | {"p": p, "batches": _batches(trunk)} | _some(branch, "train_transform")


def _trunk(section: dict[str, Any], p: float) -> dict[str, Any]:
    common = _network(section) | {
        "minimiser": _minimiser(section),
        "iterations": section.get("iterations", 6000),
        "p": p,
    }
    if not section.get("projected", True):
        return {"kind": "joint", **common, "batches": _batches(section)}
    trunk = {"kind": "network", **common, "starts": section.get("starts", 8), "ridge": section.get("ridge", 1e-3)}
    return {"kind": "separate", "each": trunk} if section.get("separate") else trunk


def _branch(section: dict[str, Any]) -> dict[str, Any]:
    kind = section.get("kind", "network")
    if kind not in ("network", "convolution", "active-neurons", "auto"):
        return {"kind": kind}
    iterations = section.get("iterations", 6000)
    if kind == "active-neurons":
        return {"kind": kind, "width": section["architecture"][1], "iterations": iterations}
    network = _network(section, with_width=False) | {"minimiser": _minimiser(section), "iterations": iterations}
    network |= {"skip": section.get("skip", False), "product": section.get("product", False)}
    if not section.get("projected", True):
        batch = {"batch": section["batch_samples"]} if section.get("batch_samples") else {}
        return {"kind": "joint", **network, "stacked": section.get("stacked", False), **batch}
    network |= {"ridge": section.get("ridge", 1e-3), "decay": section.get("decay", 0.0)}
    network |= {"convolution": kind == "convolution", "kind": "network"}
    if kind == "auto":
        return {"kind": "auto", "network": network, "trial_iterations": section.get("trial_iterations", 80)}
    return network


def _network(section: dict[str, Any], *, with_width: bool = True) -> dict[str, Any]:
    _, *hidden, width = section.get("architecture", (2, 50, 50, 50, 50))
    return (
        {"hidden": hidden}
        | ({"width": width} if with_width else {})
        | {
            "activation": section.get("activation", "relu"),
            "initialisation": section.get("initialisation", "he"),
        }
    )


def _minimiser(section: dict[str, Any]) -> dict[str, Any]:
    kind = section.get("minimiser", "l-bfgs")
    if kind == "l-bfgs":
        return {"kind": kind, "pairs": 30}
    if kind != "adam":
        return {"kind": kind}
    halve = {"halve_every": section["halve_every"]} if section.get("halve_every") else {}
    return {"kind": "adam", "first_rate": section.get("rate", 1e-3), **halve}


def _batches(section: dict[str, Any]) -> dict[str, Any]:
    names = {"batch_samples": "samples", "batch_points": "points"}
    return {new: section[old] for old, new in names.items() if section.get(old)}


def _some(section: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: section[name] for name in names if name in section}


def _inputs(text: str) -> dict[str, Any]:
    """The encoder of a text such as "log", "principal:3" or "kappa=log,f=principal:8"."""
    if "=" in text:
        pairs = [part.split("=", 1) for part in text.split(",")]
        return {"kind": "per-input", "encodings": {pair[0].strip(): _inputs(pair[-1].strip()) for pair in pairs}}
    name, _, count = text.partition(":")
    if name in _BASES and count.isdecimal():
        return {"kind": "basis", "basis": name, "count": int(count)}
    if name in ("principal", "predictive") and count.isdecimal():
        return {"kind": name, "count": int(count)}
    if text in _ELEMENTWISE:
        return {"kind": "standardise", "function": text}
    if text in ("auto", "standardise", "none"):
        return {"kind": {"none": "raw"}.get(text, text)}
    raise SettingError(f"branch.encoder is {text!r}, which no version knows")

"""The model card: a README for a saved operator, which hubs of models and people read, and no program."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import __version__
from ..intervals import intervals_from
from .training_domain import TrainingDomain

_LONGEST_LIST = 20
_CARD = """---
library_name: trunkfirst
tags: [deeponet, operator-learning, surrogate-model]
---

# Operator: {title}

A deep operator network, fitted to simulation data by trunkfirst {version}. It maps inputs to outputs at any
point of its domain, in physical units and {precision} precision.

| | |
| --- | --- |
{rows}

## Errors

{errors}

Points outside the domain are refused, and inputs unlike those of training are marked (`is_outlier`): the errors
above do not hold for them.

## Use

In Python, after `pip install trunkfirst`, with this folder as `model`:

```python
import trunkfirst

operator = trunkfirst.load("model")
fields = operator.predict(inputs)  # (samples, sensors), or a mapping from names to these: operator.input_names
```

In other programs, with ONNX, or with NumPy alone:

```
trunkfirst export model --to onnx --out model.onnx
trunkfirst export model --to numpy --out model.py
```

In a browser, from the folder of the run that this model belongs to:

```
trunkfirst export RUN --to html --out explorer.html
```

`model.json` describes the parts, and `model.safetensors` holds the arrays; loading runs no code from either.
`MANIFEST.sha256` has the checksums, which `trunkfirst.load` verifies. This page may be edited.
"""


def model_card(operator: Any, measured: Mapping[str, float | int]) -> str:
    """Markdown about an operator: what it maps, its ranges, its errors, how to load it.

    `measured` has numbers by what they are, such as the error on test samples.
    """
    domain: TrainingDomain = operator.domain or TrainingDomain()
    outputs = domain.channel_names or ("output",)
    rows = [
        *(("input", line) for line in _inputs(operator.input_names, domain)),
        *(("output", _named(name, domain)) for name in outputs[:_LONGEST_LIST]),
        ("training points", "not known" if domain.points is None else f"{len(domain.points):,}"),
        ("domain", escape(domain.in_words(), 800)),
    ]
    return _CARD.format(
        title=f"{_listed(operator.input_names)} to {_listed(outputs)}",
        version=__version__,
        precision="double" if str(operator.dtype) == "float64" else "single",
        rows="\n".join(f"| {name} | {text} |" for name, text in rows),
        errors=_errors(domain, measured),
    )


def escape(text: str, longest: int = 80) -> str:
    """A name from data as plain text in Markdown: one line, no markup, of bounded length."""
    line = " ".join(text.split())
    short = line if len(line) <= longest else f"{line[:longest]}..."
    return re.sub(r"([\\`*_{}\[\]<>#|&~$:@!])", r"\\\1", short)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _LONGEST_LIST
    return ", ".join(map(escape, names[:_LONGEST_LIST])) + (f" and {more} more" if more > 0 else "")


def _named(name: str, domain: TrainingDomain) -> str:
    unit = domain.units.get(name)
    return f"{escape(name)} ({escape(unit)})" if unit else escape(name)


def _inputs(names: tuple[str, ...], domain: TrainingDomain) -> list[str]:
    """Name, number of sensors and range of each input."""
    if domain.input_ranges is None or len(domain.input_sizes) != len(names):
        return [_named(name, domain) for name in names[:_LONGEST_LIST]]
    parts = np.split(domain.input_ranges, np.cumsum(domain.input_sizes)[:-1], axis=1)
    return [
        f"{_named(name, domain)}: {part.shape[1]:,} value{'s' * (part.shape[1] != 1)}, in training from "
        f"{part[0].min():.6g} to {part[1].max():.6g}"
        for name, part in zip(names[:_LONGEST_LIST], parts, strict=False)
    ]


def _errors(domain: TrainingDomain, measured: Mapping[str, float | int]) -> str:
    lines = [
        f"- {escape(name)}: {number:,}" if isinstance(number, int) else f"- {escape(name)}: {number:.3g}"
        for name, number in measured.items()
    ]
    if intervals := intervals_from(dict(domain.extras)):
        lines += [
            f"- relative l2 error of a field, at most, with probability {level:g}: {bound:.3g}"
            for level, bound in zip(intervals.levels, intervals.field, strict=True)
            if np.isfinite(bound)
        ]
        lines += ["- prediction intervals at each point: `operator.predict(inputs, interval=0.9)`"]
    return "\n".join(lines) or "Not recorded; measure them on samples of your own."

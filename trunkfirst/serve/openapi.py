"""The OpenAPI document of the service, generated from pydantic models with the shapes of this operator."""

from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, create_model
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from .. import __version__
from .predictor import LEVEL, Shapes
from .requests import JSON, NPZ, OUTSIDE, Limits

_HEAD = {
    "openapi": "3.1.0",
    "info": {
        "title": "A trained operator",
        "version": __version__,
        "description": "Predicts output fields of input functions, in physical units. Written by trunkfirst.",
    },
}
_STRICT = ConfigDict(extra="forbid")
_BINARY = {"type": "string", "format": "binary"}
_EVERYWHERE, _PREDICT = (401, 421, 431, 503), (400, 401, 408, 413, 415, 421, 422, 431, 503)


def openapi(shapes: Shapes, limits: Limits, *, has_token: bool) -> dict[str, Any]:
    """The document that the service answers at /openapi.json."""
    models: list[tuple[Any, JsonSchemaMode]] = [(model, "validation") for model in _models(shapes, limits)]
    schemas, definitions = models_json_schema(models, ref_template="#/components/schemas/{model}")
    request, answer, points, health, error = (schemas[model] for model in models)

    def responses(description: str, content: dict[str, Any], errors: tuple[int, ...]) -> dict[str, Any]:
        found = {"200": {"description": description, "content": _content(content)}}
        content = _content({JSON: error})
        return found | {str(k): {"description": HTTPStatus(k).phrase, "content": content} for k in errors}

    def get(summary: str, kind: str = JSON, schema: Any = None) -> dict[str, Any]:
        content = {kind: schema or {"type": "string"}}
        return {"get": {"summary": summary, "responses": responses(summary, content, _EVERYWHERE)}}

    predict = {
        "summary": "Outputs of inputs at points, by default at the training points",
        "description": "An npz request has arrays inputs (or inputs.NAME for each input function) and points.",
        "requestBody": {"required": True, "content": _content({JSON: request, NPZ: _BINARY})},
        "responses": responses("In the format of the request", {JSON: answer, NPZ: _BINARY}, _PREDICT),
    }
    paths: dict[str, Any] = {
        "/": get("The interactive explorer", "text/html"),
        "/predict": {"post": predict},
        "/points": get("The training points", JSON, points),
        "/healthz": get("Whether the server answers", JSON, health),
        "/metrics": get("Counts in Prometheus' text format", "text/plain"),
        "/openapi.json": get("This document", JSON, {"type": "object"}),
    }
    document: dict[str, Any] = {**_HEAD, "paths": paths, "components": {"schemas": definitions["$defs"]}}
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        paths["/healthz"]["get"]["security"] = []
    return document


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}


def _model(name: str, **fields: Any) -> type[BaseModel]:
    return create_model(name, __config__=_STRICT, **fields)


def _optional(description: str, **more: Any) -> Any:
    return Field(default_factory=list, description=description, **more)


def _models(shapes: Shapes, limits: Limits) -> tuple[type[BaseModel], ...]:
    """Of a request, its answer, the points, the health and an error."""
    return (
        _request(shapes, limits),
        _answer(shapes),
        _model("Points", points=(list[list[float]], ...)),
        _model("Health", status=(str, ...)),
        _model("Error", error=(str, ...), code=(str, _optional(f"{OUTSIDE}: points outside the domain."))),
    )


def _request(shapes: Shapes, limits: Limits) -> type[BaseModel]:
    def table(columns: int | None) -> Any:
        row = Annotated[list[float], Field(min_length=columns, max_length=columns)]
        return Annotated[list[row], Field(min_length=1, max_length=limits.rows)]

    # Aliases, because the names of input functions need not be Python identifiers.
    by_name = {f"input_{k}": (table(n), Field(alias=name)) for k, (name, n) in enumerate(shapes.inputs.items())}
    extrapolate = Field(default=False, description="Answer at points outside the training domain, too.")
    return _model(
        "Request",
        inputs=(table(shapes.sensors) | _model("InputsByName", **by_name), ...),
        points=(table(shapes.coordinates), _optional("By default the training points.")),
        extrapolate=(StrictBool, extrapolate),
    )


def _answer(shapes: Shapes) -> type[BaseModel]:
    channels = Field(min_length=shapes.channels, max_length=shapes.channels)

    def field(number: Any) -> Any:
        return list[number] if shapes.channels is None else list[Annotated[list[number], channels]]

    axes = "(samples, points)" if shapes.channels is None else "(samples, points, channels)"
    half_width = field(float | None)  # null outside the training domain
    return _model(
        "Answer",
        outputs=(list[field(float)], Field(description=axes)),
        is_outlier=(list[bool], _optional("Whether an input is unlike those of training. Absent if unknown.")),
        familiar=(list[bool], _optional("The opposite of is_outlier.", deprecated=True)),
        is_extrapolated=(
            list[bool],
            _optional("Whether a point lies outside the training domain. Absent if none does."),
        ),
        interval=(
            _model("Interval", level=(float, ...), half_width=(half_width, ...)),
            _optional(f"Outputs ± half_width contain the truth with probability {LEVEL}."),
        ),
    )

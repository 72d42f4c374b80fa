"""The OpenAPI document of the service, generated from pydantic models with the shapes of this operator."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import models_json_schema

from .._version import __version__
from .predictor import LEVEL, Shapes
from .requests import JSON, NPZ, Limits

_REFERENCE = "#/components/schemas/{model}"
_STRICT = ConfigDict(extra="forbid")
_ERRORS = {
    400: "Not JSON, not npz, or nested too deeply",
    401: "The token is missing or wrong",
    408: "The body arrived too slowly",
    413: "The body is too large",
    415: f"Content-Type is neither {JSON} nor {NPZ}",
    421: "The Host header is not that of this server",
    422: "Wrong names, shapes or numbers; the error says what was expected",
    503: "Too busy; try again",
}
_TEXT, _BINARY = {"type": "string"}, {"type": "string", "format": "binary"}
_NPZ_REQUEST = {**_BINARY, "description": "Arrays inputs (or inputs.NAME for each input function), and points."}


def openapi(shapes: Shapes, limits: Limits, *, has_token: bool) -> dict[str, Any]:
    """The document that the service answers at /openapi.json."""
    models = _models(shapes, limits)
    schemas, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE)
    request, answer, points, health, error = (schemas[model, "validation"] for model in models)
    every = _errors(error, 401, 421, 503)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "A trained operator",
            "version": __version__,
            "description": "Predicts output fields of input functions, in physical units. Written by trunkfirst.",
        },
        "paths": {
            "/": _get("The interactive explorer", {"text/html": _TEXT}, every),
            "/predict": {
                "post": {
                    "summary": "Outputs of inputs at points, by default at the training points",
                    "requestBody": {"required": True, "content": _content({JSON: request, NPZ: _NPZ_REQUEST})},
                    "responses": {
                        "200": {
                            "description": "In the format of the request",
                            "content": _content({JSON: answer, NPZ: _BINARY}),
                        },
                        **_errors(error, *_ERRORS),
                    },
                }
            },
            "/points": _get("The training points", {JSON: points}, every),
            "/healthz": _get("Whether the server answers", {JSON: health}, every),
            "/metrics": _get("Counts in Prometheus' text format", {"text/plain": _TEXT}, every),
            "/openapi.json": _get("This document", {JSON: {"type": "object"}}, every),
        },
        "components": {"schemas": definitions["$defs"]},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        document["paths"]["/healthz"]["get"]["security"] = []
    return document


def _models(shapes: Shapes, limits: Limits) -> tuple[type[BaseModel], ...]:
    def model(name: str, **fields: Any) -> type[BaseModel]:
        return create_model(name, __config__=_STRICT, **fields)

    def table(columns: int | None) -> Any:
        row = Annotated[list[float], Field(min_length=columns, max_length=columns)]
        return Annotated[list[row], Field(min_length=1, max_length=limits.rows)]

    def optional(description: str, **more: Any) -> Any:
        return Field(default_factory=list, description=description, **more)

    channels = Field(min_length=shapes.channels, max_length=shapes.channels)
    at_points = list[float] if shapes.channels is None else list[Annotated[list[float], channels]]
    axes = "samples, points" + ("" if shapes.channels is None else ", channels")
    # Aliases, because names of input functions need not be names of Python.
    by_name = {f"input_{k}": (table(n), Field(alias=name)) for k, (name, n) in enumerate(shapes.inputs.items())}
    interval = model("Interval", level=(float, Field(description=f"Always {LEVEL}.")), half_width=(at_points, ...))
    return (
        model(
            "Request",
            inputs=(table(shapes.sensors) | model("InputsByName", **by_name), ...),
            points=(table(shapes.coordinates), optional("By default the training points.")),
        ),
        model(
            "Answer",
            outputs=(list[at_points], Field(description=f"({axes})")),
            is_outlier=(
                list[bool],
                optional("Whether an input is unlike those of training; absent if not known."),
            ),
            familiar=(list[bool], optional("The opposite of is_outlier.", deprecated=True)),
            interval=(interval, optional(f"Outputs ± half_width contain the truth with probability {LEVEL}.")),
        ),
        model("Points", points=(list[list[float]], ...)),
        model("Health", status=(str, ...)),
        model("Error", error=(str, ...)),
    )


def _get(summary: str, schemas: dict[str, Any], errors: dict[str, Any]) -> dict[str, Any]:
    good = {"description": summary, "content": _content(schemas)}
    return {"get": {"summary": summary, "responses": {"200": good, **errors}}}


def _errors(error: dict[str, Any], *statuses: int) -> dict[str, Any]:
    content = _content({JSON: error})
    return {str(status): {"description": _ERRORS[status], "content": content} for status in statuses}


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}

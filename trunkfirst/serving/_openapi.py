"""The OpenAPI document of the server: paths, statuses, and the shapes of this operator."""

from typing import Any

from .._version import __version__
from ._requests import JSON, NPZ
from ._server_predictor import LEVEL, Shapes

_WORDS = {
    400: "Not JSON, not npz, or nested too deeply",
    401: "The token is missing or wrong",
    408: "The body came too slowly",
    413: "The body is too large",
    415: f"Content-Type is neither {JSON} nor {NPZ}",
    421: "The Host header is not that of this server",
    422: "Wrong names, shapes or numbers; the sentence says what was expected",
    503: "Too busy; try again",
}
_PREDICT_ERRORS = (400, 401, 408, 413, 415, 421, 422, 503)
_BINARY = {"type": "string", "format": "binary"}


def openapi(shapes: Shapes, *, most_rows: int, has_token: bool) -> dict[str, Any]:
    """As the server gives it out."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "A trained operator",
            "version": __version__,
            "description": "Predicts output fields of input functions, in physical units. Written by trunkfirst.",
        },
        "paths": {
            "/": _get("The operator as a page to look at", "text/html", {"type": "string"}),
            "/predict": {"post": _predict(shapes, most_rows)},
            "/points": _get("The training points", JSON, _object(points=_rows(shapes.coordinates))),
            "/healthz": _get("Whether the server answers", JSON, _object(status={"const": "ok"})),
            "/metrics": _get("Counts in Prometheus' text format", "text/plain", {"type": "string"}),
            "/openapi.json": _get("This document", JSON, {"type": "object"}),
        },
        "components": {"schemas": {"Error": _object(error={"type": "string"})}},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        document["paths"]["/healthz"]["get"]["security"] = []
    return document


def _predict(shapes: Shapes, most_rows: int) -> dict[str, Any]:
    inputs = _rows(shapes.sensors, most_rows)
    by_name = _object(**{name: _rows(size, most_rows) for name, size in shapes.inputs.items()})
    request = _object(inputs={"oneOf": [inputs, by_name]}, points=_rows(shapes.coordinates, most_rows))
    request["required"] = ["inputs"]
    npz = {**_BINARY, "description": "Arrays inputs (or inputs.NAME for each input function), and points."}
    answers = {JSON: {"schema": _answer(shapes)}, NPZ: {"schema": _BINARY}}
    return {
        "summary": "Outputs of inputs at points, by default at the training points",
        "requestBody": {"required": True, "content": {JSON: {"schema": request}, NPZ: {"schema": npz}}},
        "responses": {
            "200": {"description": "In the format of the request", "content": answers},
            **_errors(*_PREDICT_ERRORS),
        },
    }


def _answer(shapes: Shapes) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "number"}
    if shapes.channels is not None:
        value = {"type": "array", "items": value, "minItems": shapes.channels, "maxItems": shapes.channels}
    at_points = {"type": "array", "items": value}
    interval = _object(level={"const": LEVEL}, half_width=at_points)
    answer = _object(
        outputs={"type": "array", "items": at_points, "description": _axes(shapes)},
        familiar={
            "type": "array",
            "items": {"type": "boolean"},
            "description": "Whether an input resembles those of training; absent where that is not known.",
        },
        interval={**interval, "description": "Outputs plus and minus half_width hold the truth so often."},
    )
    return {**answer, "required": ["outputs"]}


def _axes(shapes: Shapes) -> str:
    return "(samples, points" + (")" if shapes.channels is None else f", {shapes.channels} channels)")


def _rows(columns: int | None, most: int | None = None) -> dict[str, Any]:
    sizes = {} if columns is None else {"minItems": columns, "maxItems": columns}
    row = {"type": "array", "items": {"type": "number"}, **sizes}
    return {"type": "array", "items": row, "minItems": 1, **({} if most is None else {"maxItems": most})}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _get(summary: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    good = {"description": summary, "content": {kind: {"schema": schema}}}
    return {"get": {"summary": summary, "responses": {"200": good, **_errors(401, 421, 503)}}}


def _errors(*statuses: int) -> dict[str, Any]:
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": _WORDS[status], "content": content} for status in statuses}

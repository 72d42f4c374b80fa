"""The HTTP service of a trained operator."""

from .predictor import Prediction, Predictor
from .requests import JSON, NPZ, Limits
from .server import make_server, serve

__all__ = ["JSON", "NPZ", "Limits", "Prediction", "Predictor", "make_server", "serve"]

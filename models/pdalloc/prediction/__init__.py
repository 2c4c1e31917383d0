"""Prediction: states of pools, laws of what requests see on a path, a whole fleet."""

from pdalloc.prediction.fleet import PoolKey, Prediction, predict
from pdalloc.prediction.predictor import Predictor
from pdalloc.prediction.spread import spread_cells, spread_nodes
from pdalloc.prediction.states import DecodeState, Decoding, PrefillState

__all__ = [
    "DecodeState",
    "Decoding",
    "PoolKey",
    "Prediction",
    "Predictor",
    "PrefillState",
    "predict",
    "spread_cells",
    "spread_nodes",
]

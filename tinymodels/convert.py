"""From what others release to what runs here: a config.json to a config, weights to a model.

Importing this imports no torch: the bytes of a config.json are answered at once.
"""

from .families import config_from

__all__ = ["config_from", "load"]


def load(model, state_dict, source: str = "transformers") -> None:
    """Copy released weights into `model`; see `tinymodels.weights.load`.

    source: whose names they have, "transformers" (V1 to V4) or "deepseek_v4_1" (the released
    inference code). Errors: ValueError naming every tensor that is missing, unknown or
    misshapen; the model is unchanged then.
    """
    from . import weights

    weights.load(model, state_dict, source)

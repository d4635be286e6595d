"""From released models to the ones here: their configurations, and later their weights.

`config_from` imports no torch.
"""

from .families import config_from

__all__ = ["config_from"]

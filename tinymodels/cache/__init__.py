"""What stands between `project` and `attend`: rows of bytes, one per token and layer or fewer."""

from .model import ModelCache, allocate

__all__ = ["ModelCache", "allocate"]

"""How a token looks back: one file a mechanism, each `project` then `attend`."""

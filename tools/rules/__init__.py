"""The lints, one function a rule: it takes a Page and yields (cell number or None, sentence)."""

"""Independent references in float64 numpy, written otherwise than the solutions."""

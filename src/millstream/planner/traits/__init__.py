"""Properties of a relation, derived without running it: pure functions, one file per property."""

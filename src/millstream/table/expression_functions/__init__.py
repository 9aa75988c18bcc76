"""Functions of `expressions`, by topic."""

"""Comparisons: = <> < <= > >=, IS NULL, IS DISTINCT FROM, BETWEEN, IN, LIKE, GREATEST, LEAST."""

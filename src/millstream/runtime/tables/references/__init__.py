"""Slow reference implementations of the table operators, a row at a time."""

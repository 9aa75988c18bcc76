"""Rows of a state by key: read at a version, changed in an epoch."""

"""Slow reference implementations that fast paths are compared with."""

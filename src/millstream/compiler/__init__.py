"""Compiles the logical graph to stages."""

"""Kernels, one module per family of functions."""

"""Slow and obvious ways to compute an answer, which fast paths are compared with."""

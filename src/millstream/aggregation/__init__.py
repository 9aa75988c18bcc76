"""Built-in aggregates: vectorised kernels, their record-at-a-time reference, and panes of windows.

Operators compute with them, query servers compute results of stored accumulators, and compiler passes check which
measures run vectorised.
"""

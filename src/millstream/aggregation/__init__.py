"""Built-in aggregates: vectorised kernels, their record-at-a-time reference, and panes of windows.

Operators aggregate with them, query servers compute results from stored accumulators, and compiler passes check which
measures run vectorised.
"""

"""The slow and obvious way of every kernel: Python functions of the values of one row."""

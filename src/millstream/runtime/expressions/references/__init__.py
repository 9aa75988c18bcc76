"""The slow and obvious implementation of every kernel: Python functions of the values of one row."""

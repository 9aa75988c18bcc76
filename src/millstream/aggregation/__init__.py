"""Ready aggregates: kernels over columns, the same a record at a time, and panes of windows.

Operators compute with them, query servers make results of what is stored, and passes ask what runs in columns.
"""

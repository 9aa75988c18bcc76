"""Intermediate tables between `group_by`, `window` or `over_window` and `select`."""

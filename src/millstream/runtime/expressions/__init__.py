"""Expressions of SQL inside a task: compiled once to steps over Arrow columns, beside a reference a row at a time."""

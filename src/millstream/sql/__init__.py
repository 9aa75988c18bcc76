"""Parses Flink's SQL: turns a string into syntax, or raises an error that shows the position.

This package does not interpret tables, types or plans: `planner` binds the syntax.
"""

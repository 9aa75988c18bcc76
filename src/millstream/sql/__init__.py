"""Parses Flink's SQL: a string becomes syntax, or an error that shows the place.

This package knows nothing of tables, the meaning of types, or plans: `planner` binds the syntax.
"""

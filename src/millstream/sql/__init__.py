"""Flink's SQL as text: what is written becomes syntax, or an error that draws the place.

Knows nothing of tables, types' meaning or plans: `planner` gives the words their meaning.
"""

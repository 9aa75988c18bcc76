"""Operators of tables: batches of typed columns, perhaps with the kinds of changes."""

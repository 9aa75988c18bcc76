"""Operators of tables: batches of typed columns, optionally with row kinds."""

"""Columns of the Table API: types as arguments, resolved columns, inferred types."""

"""Columns as the Table API declares and shows them: types as arguments, resolved columns, inferred types."""

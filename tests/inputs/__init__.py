"""Random and hostile inputs: types, rows, expressions, syntax, messages, names."""

"""Flink's built-in functions: signatures, result types, one line of documentation each. One module per family."""

"""Flink's built-in functions: signatures, types of results, a line of documentation each. One module per family."""

"""SQL expressions in a task: compiled once to steps over Arrow columns. Includes a row-at-a-time reference for
tests."""

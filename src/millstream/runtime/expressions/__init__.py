"""SQL expressions inside a task: compiled once to steps over Arrow columns; a row-at-a-time reference for tests."""

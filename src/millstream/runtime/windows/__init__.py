"""Windows inside a task: the window operators, their state, and the slow reference."""

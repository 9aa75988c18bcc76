"""Windows inside a task: the general operator, what it keeps, and the slow reference it is held against."""

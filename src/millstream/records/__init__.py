"""Records in a task: Python values, Arrow columns, and their conversion."""

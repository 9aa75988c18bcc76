"""Records in a task: Python values, Arrow columns, and the way between them."""

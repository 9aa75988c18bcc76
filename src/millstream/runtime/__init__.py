"""The inside of a task: receives blocks, runs operators, sends blocks and a final barrier. No PySpark."""

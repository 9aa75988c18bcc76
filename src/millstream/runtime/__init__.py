"""What happens inside a task: blocks in, operators, blocks out, a barrier at the end. No PySpark."""

"""Runs plans on Spark: the session, the runner in the driver, the worker in a task."""

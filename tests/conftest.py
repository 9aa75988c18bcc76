"""Makes this folder importable, so that fast and Spark tests run the same `programs`."""

"""Implementation of `stream_execution_environment`: settings, dependencies, caches. PyFlink has none of these module
paths."""

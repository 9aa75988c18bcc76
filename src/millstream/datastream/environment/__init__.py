"""Implementation of `stream_execution_environment`: settings, dependencies, caches. No module path is PyFlink's."""

"""Behind `stream_execution_environment`: settings, dependencies, caches. Ours; no path here is PyFlink's."""

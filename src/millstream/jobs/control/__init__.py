"""Requests of other processes to a running job, through its store."""

"""Waiting in tests: time limits, moments of a job, answers that must come, refusals."""

"""Waiting in tests: time limits, moments of a job, eventual answers, rejections."""

"""Savepoints, forks, and the start of a job from one."""

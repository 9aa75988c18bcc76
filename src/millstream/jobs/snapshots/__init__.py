"""Savepoints, forks, and starting a job from one."""

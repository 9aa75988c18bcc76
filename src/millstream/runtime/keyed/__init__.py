"""Keyed state as functions see it: the backend that opens it, handles of its kinds, timers, visits of keys."""

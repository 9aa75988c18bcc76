"""Keyed state of functions: the backend that opens it, state handles, timers, and visits to keys."""

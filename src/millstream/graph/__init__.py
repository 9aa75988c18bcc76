"""The logical plan: the user's program as frozen data."""

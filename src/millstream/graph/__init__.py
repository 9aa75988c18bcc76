"""The logical plan: what the user wrote, as frozen data."""

"""Tables of keyed rows: reading a version, and collecting the changes of an epoch."""

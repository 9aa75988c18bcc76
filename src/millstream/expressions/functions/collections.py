"""Arrays, maps, multisets and rows."""

"""Keys: equality, canonical bytes, hashes, key groups."""

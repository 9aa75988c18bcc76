"""What is one key: equality, canonical bytes, hashes, key groups."""

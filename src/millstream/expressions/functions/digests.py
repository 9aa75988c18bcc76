"""Hashes and encodings of bytes."""

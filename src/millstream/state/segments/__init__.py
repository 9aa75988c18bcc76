"""Immutable sorted files of rows: writing, checking, opening, searching and merging them, and table versions."""

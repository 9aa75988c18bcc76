"""Immutable sorted files of rows: written, checked, opened, searched, merged; versions that name them."""

"""Formats of tables: rows of SQL types as bytes in files and messages, and back."""

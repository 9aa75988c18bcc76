"""Table formats: rows of SQL types as bytes in files and messages, and back."""

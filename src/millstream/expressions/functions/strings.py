"""Text: lengths, cases, parts, padding, searching, encoding."""

"""Runs a past epoch again and compares it with the committed result."""

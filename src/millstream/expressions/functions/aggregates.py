"""Aggregate functions: signatures and types of results."""

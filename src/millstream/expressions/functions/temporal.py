"""Dates, times, intervals, zones, and Java’s patterns for them."""

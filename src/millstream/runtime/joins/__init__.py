"""Joins: records of two streams that have one key and meet in time."""

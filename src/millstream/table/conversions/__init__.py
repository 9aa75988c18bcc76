"""Conversions between tables and DataStreams, and from lists and DataFrames of the program."""

"""Converts between tables and DataStreams, and creates tables from lists and DataFrames of the program."""

"""Between tables and what is none: DataStreams both ways, lists and DataFrames of the program."""

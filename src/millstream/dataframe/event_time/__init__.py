"""Event time of data frames."""

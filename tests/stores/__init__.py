"""Stores in memory that fill up, lag, fail or report what happens to them."""

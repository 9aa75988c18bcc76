"""The operators: how each kind of node processes a batch and calls the user's functions."""

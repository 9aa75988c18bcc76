"""The implementation of `udf`: base classes of functions, their wrappers and descriptions."""

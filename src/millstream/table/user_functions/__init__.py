"""The inside of `udf`: classes to derive functions from, what decorators make of them, and how they are described."""

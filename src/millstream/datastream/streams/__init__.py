"""Implementation of `data_stream`: each class of stream, and shared code. PyFlink has none of these module paths."""

"""Implementation of `data_stream`: each class of stream, and shared code. No module path here is PyFlink's."""

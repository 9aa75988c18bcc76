"""Implementation of `state`: properties of descriptors beyond name and type. No module path here is PyFlink's."""

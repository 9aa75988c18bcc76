"""Implementation of `state`: properties of descriptors beyond name and type. PyFlink has none of these module paths."""

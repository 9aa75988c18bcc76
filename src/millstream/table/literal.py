"""PyFlink's module of literals, which has no public names. Literals are made by `lit`."""

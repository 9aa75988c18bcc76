"""Functions of `expressions` by what they are about, where one module would hold too many."""

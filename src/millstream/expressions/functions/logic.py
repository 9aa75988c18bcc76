"""Three-valued logic: AND, OR, NOT, IS TRUE and its kin."""

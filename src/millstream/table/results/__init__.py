"""Results of statements: rows of a job or of the catalog, as an iterator, as a table on the screen, or as pandas."""

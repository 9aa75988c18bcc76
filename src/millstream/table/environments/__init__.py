"""The implementation of `table_environment`: its catalogs and functions, and the execution of statements."""

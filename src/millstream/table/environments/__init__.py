"""The inside of `table_environment`: catalogs and functions of an environment, and what its statements do."""

"""The implementation of `catalog`: columns, catalog objects, and the catalog in memory."""

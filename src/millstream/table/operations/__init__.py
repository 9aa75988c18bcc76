"""The implementation of the Table API's classes: statements, jobs, results. Programs do not import it."""

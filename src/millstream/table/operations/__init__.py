"""What the classes of the Table API do inside: statements, jobs, results, conversions. Programs do not import it."""

"""`'connector' = 'kafka'`: topics as tables that grow, or change."""

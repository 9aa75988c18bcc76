"""`'connector' = 'kafka'`: topics as tables that only grow."""

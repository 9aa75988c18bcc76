"""`'connector' = 'kafka'`: topics as insert-only or changing tables."""

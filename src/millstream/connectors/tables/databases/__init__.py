"""`'connector' = 'jdbc'` and `'postgres-cdc'`: database tables as SQL tables."""

"""`'connector' = 'jdbc'` and `'postgres-cdc'`: tables of databases as tables of SQL."""

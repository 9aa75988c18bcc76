"""`'connector' = 'filesystem'`: files in a folder or an object store as a table, partitioned by folders or not."""

"""SQL databases: a sink with one transaction per epoch; PostgreSQL tables and their changes as sources.

addresses       addresses as JDBC or the database's clients write them; passwords are never shown. `tls_modes`:
                how the server's certificate is checked
patience        retries while a database is unavailable, and the classification of its errors
dialect         the operations that the sink needs of a database: `postgres_dialect` and `mysql_dialect`
sink            writes rows and the name of their commit in one transaction
unique_indexes  the tables that support upserts by key
sql_values      values as statement parameters; whole columns in `copy_text`, JDBC's `?` in `statements`

postgres_session    connections to PostgreSQL
table_layout        a table's columns, and in `column_types` their types in Millstream
table_copy          copies the rows of a table in one snapshot into a job's store; `stored_tables`: the copies
table_source        reads these rows, once
captured_tables     checks the catalogue of a table whose changes are read; `publications`: its publication
first_start         creates slot, publication and copy, or undoes them if the start is refused (`created_objects`)
slots               the log of a table, read by range; `pgoutput` decodes it, `change_reader` does both in a task
changes_source      the rows, then every change of them; `log_watch` and `log_end` limit how far the log may be read
"""

"""SQL databases: a sink with a transaction per epoch; PostgreSQL's tables, and their changes, as sources.

addresses       where a database is, as JDBC or the database itself writes it; passwords are never shown. `tls_modes`
                says what is checked of its certificate
patience        waiting for a database that is away, and what its errors mean
dialect         what the sink asks of a database; `postgres_dialect` and `mysql_dialect` answer
sink            rows and the name of their commit, in one transaction
unique_indexes  the tables that rows can be put into by key
sql_values      values as a database takes them; whole columns in `copy_text`, JDBC's `?` in `statements`

postgres_session    connections to PostgreSQL
table_layout        a table's columns, and in `column_types` our types for them
table_copy          the rows of a table in one snapshot, copied into a job's store; what is there: `stored_tables`
table_source        these rows, once
captured_tables     what the catalogue must say of a table whose changes are read; `publications`: of its publication
first_start         slot, publication and copy are made, or, where the start is refused, undone (`beginnings`)
slots               the log of a table, read by range; `pgoutput` decodes it, `change_reader` does both in a task
changes_source      the rows, then every change of them; `log_watch` and `log_end` say how far the log may be read
"""

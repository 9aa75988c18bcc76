"""SQL databases: a sink with a transaction per epoch; PostgreSQL's tables, and their changes, as sources.

addresses        where a database is, as JDBC or the database itself writes it; passwords are never shown
dialect          what the sink asks of a database; `postgres_dialect` and `mysql_dialect` answer
patience         waiting for a database that is away, and what its errors mean
sink             rows and the name of their commit, in one transaction
"""

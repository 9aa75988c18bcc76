"""The archive of a table that a job keeps: files of rows that left its state, which the state names (decision 0023).

archive.py           when rows leave, and the sink that publishes their files
archived_files.py    what the state says of one file; reading it under its published or its staged name
archive_sink.py      publishes files that the table's own operator has staged
leftovers.py         what lost attempts leave in a Delta table's folder
"""

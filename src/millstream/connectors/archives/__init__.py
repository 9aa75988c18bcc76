"""Table archives: files with rows that left the state of a job's table; the state lists the files (decision 0023).

archive.py           when rows leave the state, and the sink that publishes their files
archived_files.py    the state's entry for a file; reading it under its published or its staged name
archive_sink.py      publishes files staged by the table's own operator
leftovers.py         leftovers of lost attempts in a Delta table's folder
"""

"""Keyed state: keys, key groups, and the tables that store state by key.

`hashing` turns a column of keys into 64-bit hashes, `canonical` defines which Python values are equal as keys, and
`key_columns` combines the two in the key column that every exchange and every state lookup uses.

A state is a table of segments. `changes` collects the changes of an epoch and writes them as one `segment`; a `version`
lists the segments of a table; `table` opens a version and looks up many keys at once; `compaction` bounds the number of
segments. `reference_table` implements the same table as a dictionary, for tests. This package does not import PySpark,
so it runs, and is tested, without a JVM.
"""

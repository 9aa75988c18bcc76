"""Keys, key groups and state: everything that is found again by its key.

`hashing` turns a column of keys into 64-bit hashes, `canonical` says which Python values are one key, and
`keys` joins the two into the column every exchange and every state lookup starts from.

State is tables of segments. `changes` collects what an epoch changes and writes it as one `segment`; a `version` is
the list of segments that make up a table; `table` opens a version and answers for many keys at once; `compaction`
keeps segments few. `reference` is the same table as a dictionary, to hold all of this against. Nothing here
imports PySpark, so all of it runs, and is tested, without a JVM.
"""

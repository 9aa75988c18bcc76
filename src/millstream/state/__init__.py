"""Keys, key groups and state: everything that is found again by its key.

`hashing` turns a column of keys into 64-bit hashes, `canonical` says which Python values are one key, and
`keys` joins the two into the column every exchange and every state lookup starts from. Nothing here
imports PySpark, so all of it runs, and is tested, without a JVM.
"""

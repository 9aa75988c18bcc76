"""Records that are bytes while they travel: messages of a log or a queue, and how they become columns and back.

`codecs` holds the contract; each format has a module of its own beside it.
"""

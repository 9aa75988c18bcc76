"""Formats of messages: the bytes of a log or a queue, and their conversion to columns and back.

`codecs` holds the contract; each format has its own module.
"""

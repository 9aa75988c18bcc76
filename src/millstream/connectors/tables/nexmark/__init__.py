"""The events of the Nexmark benchmark as a table: people, auctions and bids.

Follows the benchmark's published definitions: the proportions of the three kinds, the hot auctions and bidders,
the price distribution. An event is a pure function of its number, so any range can be read again.
"""

"""The events of the Nexmark benchmark as a table: people who open auctions, and bid in them.

Written from the benchmark's published definitions: the proportions of the three kinds, which auctions and bidders are
hot, how prices are spread. What an event says is a pure function of its number, so any range can be read again.
"""

"""Transfer of records between tasks: routers, blocks, envelopes, and the mailboxes that check them."""

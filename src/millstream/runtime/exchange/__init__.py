"""From one task to the next: routers, blocks, envelopes, and the mailboxes that check them."""

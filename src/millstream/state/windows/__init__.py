"""Windows in the store: panes, places, and the aggregates bound to them."""

"""Windows as the store knows them: panes, places, and what is measured in them."""

"""The inside of `catalog`: columns as they are shown, what a catalog holds, and a catalog in memory."""

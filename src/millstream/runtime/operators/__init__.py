"""What each kind of node does to a batch, and the user's functions it calls."""

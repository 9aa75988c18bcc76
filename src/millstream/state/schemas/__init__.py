"""What a state was saved as and is now, and how rows of the one are read as the other."""

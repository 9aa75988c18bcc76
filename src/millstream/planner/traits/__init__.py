"""What can be known of a relation without running it: pure functions, one file per question."""

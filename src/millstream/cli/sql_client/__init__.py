"""`millstream sql`: a terminal for SQL, and scripts of it. Queries run as jobs in this process."""

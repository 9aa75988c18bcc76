"""Functions of windows of rows: ROW_NUMBER, RANK, LAG, LEAD and the like."""

"""The slow ways of the operators of tables: a row at a time, as a reader would write them down."""

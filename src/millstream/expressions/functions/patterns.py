"""Regular expressions with the meaning of Java’s."""

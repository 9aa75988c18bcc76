"""The stored form of operator state outside tables: accounts, lists, event time and queryable states."""

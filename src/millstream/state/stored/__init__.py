"""What operators write down beside their tables: values, lists, and what may be queried."""

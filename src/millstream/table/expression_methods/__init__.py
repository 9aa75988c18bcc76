"""The methods of PyFlink's `Expression`, by topic: one mixin each."""

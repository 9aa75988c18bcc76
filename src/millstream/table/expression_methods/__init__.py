"""The methods of PyFlink's `Expression`, by what they are about: one mixin each."""

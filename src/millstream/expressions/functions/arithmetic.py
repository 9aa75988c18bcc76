"""Numbers: + - * / %, rounding, logarithms, trigonometry, random numbers."""

"""What a person sees at a terminal."""

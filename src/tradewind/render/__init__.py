"""Plans in words and in pictures."""

"""What to do, without doing it: trees as values, their differences, and who wins."""

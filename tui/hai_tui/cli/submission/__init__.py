"""From the words of a command line to submitted tasks."""

"""What the page asks of this server: thin, one resource a file."""

"""What is counted and recorded while the server leads."""

"""What operators may choose about scheduling."""

"""What a user asks for, and the versions that follow from it."""

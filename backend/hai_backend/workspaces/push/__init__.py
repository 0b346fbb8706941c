"""A push, from its first message to the commit."""

"""Authentication (tokens, run tokens, the user directory) and authorization (permissions)."""

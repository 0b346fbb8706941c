"""Authentication (tokens, run tokens, the directory of users) and authorization (permissions)."""

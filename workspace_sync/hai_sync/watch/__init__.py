"""Watches for changed files, and the socket for requests to a daemon."""

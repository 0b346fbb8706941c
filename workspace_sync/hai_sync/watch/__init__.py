"""Hints that files have changed, and the socket by which a running daemon is asked."""

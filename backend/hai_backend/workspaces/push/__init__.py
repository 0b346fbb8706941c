"""Handles a push, from its first message to the commit."""

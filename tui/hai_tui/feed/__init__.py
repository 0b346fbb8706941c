"""Reconnecting streams of the server, and models that store their answers."""

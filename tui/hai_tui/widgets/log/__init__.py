"""Logs on the screen."""

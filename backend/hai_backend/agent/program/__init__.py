"""Prepares, starts, suspends, watches and ends the user's program."""

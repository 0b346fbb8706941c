"""Widgets receive values and post messages; none of them talks to a server."""

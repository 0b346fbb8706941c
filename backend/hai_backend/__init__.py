"""The server of HAI Platform: see docs/contributing/architecture.md for its packages and the main loop."""

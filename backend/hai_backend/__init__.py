"""The server of HAI Platform: see docs/contributing/architecture.md for the rooms and the one loop."""

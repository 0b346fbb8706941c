"""The server of HAI Platform: see backend/docs/architecture.md for the rooms and the one loop."""

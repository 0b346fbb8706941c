"""The workspace on the server, reached through a connection of hai.client."""

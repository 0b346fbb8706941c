"""The workspace on the server, reached through the connection of hai.client."""

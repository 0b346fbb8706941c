"""The agent's side of the server: the stream of the rank, and tunnels."""

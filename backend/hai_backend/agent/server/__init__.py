"""Communication of the agent with the server: the stream of the rank, and tunnels."""

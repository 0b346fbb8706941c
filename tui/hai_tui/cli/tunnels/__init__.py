"""Connections to a rank through tunnels: forwarded ports and terminals."""

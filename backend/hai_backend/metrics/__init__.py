"""What the server counts (Prometheus)."""

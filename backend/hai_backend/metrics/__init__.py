"""What the server counts (Prometheus), and what its GPUs say (NVML)."""

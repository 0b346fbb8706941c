"""Who resolves and installs: uv, or conda where it is installed."""

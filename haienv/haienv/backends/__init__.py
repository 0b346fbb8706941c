"""Installers that haienv runs: uv, and conda where it is installed."""

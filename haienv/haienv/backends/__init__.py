"""Runs the installers: uv, and conda if it is installed."""

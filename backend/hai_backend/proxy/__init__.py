"""Browsers to http services of tasks: HTTP and websockets through tunnels."""

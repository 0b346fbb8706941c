"""The HTTP API server: routing, discovery, lists, encodings, and the log of requests."""

"""The gRPC API: one package per resource, `server` for the server and its checks, `request` for common helpers."""

"""The connection to the server: channels, retries, streaming calls, and conversion of gRPC errors."""

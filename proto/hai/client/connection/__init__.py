"""The connection to the server: channel, retries, streaming calls, and errors of gRPC as errors of hai.client."""

"""The gRPC server: listening, the checks that every call passes, and forwarding to the leader."""

"""One gRPC service a file: check, convert, call, convert. Errors and rights are dealt with in interceptors."""

"""The connection to the server: channels, retries, streaming calls, and the conversion of gRPC errors to those of
hai.client.
"""

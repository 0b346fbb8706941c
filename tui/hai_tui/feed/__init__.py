"""Streams of the server and what they say, as values: a stream that reconnects, and models that apply its answers."""

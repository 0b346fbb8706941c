"""Large files as chunks: cut, sent once, put together."""

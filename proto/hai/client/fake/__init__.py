"""A client without a server, for tests of what is built on the client."""

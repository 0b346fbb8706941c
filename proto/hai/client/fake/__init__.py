"""A client without a server, for demonstrations and for tests of programs that use the client."""

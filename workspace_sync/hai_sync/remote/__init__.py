"""The other side: a server's workspace, reached through hai.client's connection."""

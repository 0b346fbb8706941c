"""The server process: its listeners and files, the election of a leader, and the components of the leader."""

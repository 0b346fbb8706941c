"""One server process: where it listens, its files, leadership, and how all parts are joined."""

"""hai-agent: runs the program of one rank, spools its output until the server has stored it, and ends it reliably."""

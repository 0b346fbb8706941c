"""hai-agent: runs the program of one rank, sends its output to the server, and ends it reliably."""

"""The agent (hai-agent). It runs the program of one rank, sends its output to the server, and ends it reliably."""

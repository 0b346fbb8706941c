"""hai-agent: runs one rank's program, keeps its output until the server has it, and ends it for certain."""

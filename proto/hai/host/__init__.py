"""What the server and the tools need of the machine that they run on: disk, memory, files, events."""

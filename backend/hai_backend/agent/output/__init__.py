"""What a program prints, on its way to the server: read, cut into lines, kept on disk until it is acknowledged."""

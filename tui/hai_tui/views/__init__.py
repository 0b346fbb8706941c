"""What columns each kind of thing has; read by the command line and by the terminal app."""

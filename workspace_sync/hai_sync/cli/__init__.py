"""The commands `haiworkspace` and `hai workspace`."""

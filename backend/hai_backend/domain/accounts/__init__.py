"""Users, what they may do, and what they are told."""

"""Uses of a tunnel into a rank: forwarded ports and terminals."""

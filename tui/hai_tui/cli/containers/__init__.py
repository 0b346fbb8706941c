"""What commands about containers and ranks have in common: options, ports, terminals."""

"""TunnelService: connections to ports, services and shells of ranks."""

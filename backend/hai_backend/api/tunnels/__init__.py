"""TunnelService: ports and shells of ranks."""

"""NodeService: nodes, their tenants, labels and groups."""

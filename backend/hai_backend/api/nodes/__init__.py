"""NodeService: nodes, the ranks on them, their labels and groups."""

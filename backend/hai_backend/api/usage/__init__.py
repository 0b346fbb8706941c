"""UsageService: the resource usage of ranks, nodes and the cluster."""

"""PortService: ports of the nodes that lead to services of tasks."""

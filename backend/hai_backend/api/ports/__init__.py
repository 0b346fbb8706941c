"""PortService: ports of nodes that lead to services of tasks."""

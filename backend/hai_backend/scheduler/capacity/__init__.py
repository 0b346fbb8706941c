"""The free resources of nodes, the requests of tasks, and where requests fit."""

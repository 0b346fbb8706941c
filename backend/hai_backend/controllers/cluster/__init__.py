"""Processes the reports of the launcher and of agents about nodes, ranks and services."""

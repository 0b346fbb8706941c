"""Nodes, agents and ranks as they really are: what the launcher and agents report."""

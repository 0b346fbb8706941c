"""Servers on this machine and in a Kubernetes cluster."""

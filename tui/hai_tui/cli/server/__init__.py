"""The server of this machine, and servers in a Kubernetes cluster."""

"""One pass over one node group."""

"""Pages about nodes and the whole cluster."""

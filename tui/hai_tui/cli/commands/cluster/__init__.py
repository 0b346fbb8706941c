"""Commands about servers, nodes and the whole cluster."""

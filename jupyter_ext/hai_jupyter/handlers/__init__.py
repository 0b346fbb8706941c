"""The requests of the page to this server, one module for each resource."""

"""Live updates of open pages, from one stream of the platform for all of them."""

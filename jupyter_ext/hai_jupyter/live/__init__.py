"""What open pages follow: one stream from the platform for all of them."""

"""Series of usage as charts and text. Pure."""

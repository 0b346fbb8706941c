"""Series of use as charts and lines of text. Pure."""

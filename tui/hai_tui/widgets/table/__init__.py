"""Tables of any length; only visible cells are formatted."""

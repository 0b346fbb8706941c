"""Tables of any length, of which only visible cells are formatted."""

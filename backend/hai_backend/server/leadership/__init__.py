"""Of several servers one leads. Which one is decided here, in the database that they share; see docs/decisions/0008."""

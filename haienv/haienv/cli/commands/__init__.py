"""One file for each family of commands; imported when it is used."""

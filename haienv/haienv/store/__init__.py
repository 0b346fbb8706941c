"""The files that environments consist of: their paths, formats, access rights and changes."""

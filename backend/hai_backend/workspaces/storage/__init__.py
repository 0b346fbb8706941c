"""Work on the storage itself: directories without links, many threads where it is slow."""

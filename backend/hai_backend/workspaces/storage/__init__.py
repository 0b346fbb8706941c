"""Accesses storage: directories without links, scans, and many threads where storage is slow."""

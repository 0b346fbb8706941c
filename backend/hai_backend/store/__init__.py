"""The store: everything that must survive a restart, on SQLite, PostgreSQL or in memory."""

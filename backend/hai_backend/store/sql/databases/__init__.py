"""The databases that a SqlStore can use: SQLite and PostgreSQL."""

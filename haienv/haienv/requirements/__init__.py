"""Requirements that a user gives on the command line or in files."""

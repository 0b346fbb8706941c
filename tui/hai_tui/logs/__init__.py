"""Logs of tasks for the terminal app: reading, a bounded window in memory, search, rows of the screen.

Nothing here knows Textual. The widgets below widgets/log draw the rows.
"""

"""Logs of tasks as a terminal app needs them: harmless text, a bounded window on a log of any size, search, and the
way to the server. Only widgets/log/view.py, which draws it, knows Textual.
"""

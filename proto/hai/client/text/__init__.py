"""Texts for people that the command line, the terminal app and JupyterLab share."""

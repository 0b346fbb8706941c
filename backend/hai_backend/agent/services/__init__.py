"""Services that run beside the program of a rank, such as JupyterLab, and shells in the rank."""

"""The platform inside JupyterLab: server extension, kernels, magics."""

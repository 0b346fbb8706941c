"""`python -m haienv` runs the `haienv` command."""

from __future__ import annotations

import sys

from haienv.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m hai_backend.sim`."""

from __future__ import annotations

import sys

from hai_backend.sim.cli.command import main

if __name__ == "__main__":
    sys.exit(main())

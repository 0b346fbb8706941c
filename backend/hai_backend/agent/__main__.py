"""`python -m hai_backend.agent RANK_DIR`: see docs/contributing/architecture.md for what stands in RANK_DIR."""

from __future__ import annotations

import os
import sys

from hai_backend.agent.main import main

if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing is left to say; taking grpc apart would keep the node for a while longer
    os._exit(code)

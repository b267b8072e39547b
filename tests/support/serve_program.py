"""An environment served as prime-rl serves it, by a broker and its spawned worker, or by this process alone.

Run: serve_program.py CONFIG ADDRESS WORKERS
"""

import json
import logging
import sys
from pathlib import Path

from verifiers.v1.serve import serve_env

if __name__ == "__main__":  # spawned workers import this file again
    data = json.loads(Path(sys.argv[1]).read_text())
    serve_env(max_workers=int(sys.argv[3]), address=sys.argv[2], config_data=data, log_setup=logging.basicConfig)

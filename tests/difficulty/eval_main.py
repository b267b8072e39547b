"""Run vf-eval's own entry point several times in one process: importing verifiers takes seconds.

python eval_main.py '[["--env.id", …], …]'
"""

import json
import sys

from verifiers.v1.cli.eval.main import main


def run(argument_lists: list[list[str]]) -> None:
    """Run each argument list; an eval that ends by SystemExit(0) had nothing to do."""
    for arguments in argument_lists:
        try:
            main(arguments)
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                raise


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))

"""`python -m opencode_env.fetch`: download the pinned OpenCode and ripgrep for this machine, ahead of any rollout."""

import logging
import sys

from verifiers.v1.errors import HarnessError

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform


def main() -> None:
    """Fill the cache and say where it is; a failure is one line."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        build = ensure_build(DEFAULT_VERSION, host_platform())
    except (HarnessError, ValueError) as error:
        raise SystemExit(str(error)) from error
    sys.stdout.write(f"OpenCode {DEFAULT_VERSION} is ready in {build.directory}\n")


if __name__ == "__main__":
    main()

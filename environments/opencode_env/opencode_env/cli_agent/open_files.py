"""The process's limit of open files: each rollout needs some, and the usual soft limit is that of a desktop program."""

import logging
import resource

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")


def raise_open_files() -> None:
    """Raise the soft limit to the hard one, for this process and those it starts; harmless when it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("at most %d open files (%s): raise it with `ulimit -n`", soft, error)

"""`python -m opencode_env.openenv.tbench2`: serves Terminal-Bench 2 tasks over OpenEnv's protocol, on the loopback."""

import argparse
import os
import signal

_INSTALL = 'the server needs the extra "openenv": pip install "opencode-env[openenv]"'
_MAX_REQUEST_BYTES = 64 << 20


def main() -> None:
    """Entry point; settings are the `TB2_*` variables and `MAX_CONCURRENT_ENVS`."""
    parser = argparse.ArgumentParser(prog="python -m opencode_env.openenv.tbench2", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="port of the loopback (default: %(default)s)")
    port = parser.parse_args().port
    try:
        import uvicorn
        from openenv.core.env_server import create_app
    except ModuleNotFoundError as error:
        raise SystemExit(_INSTALL) from error

    from opencode_env.openenv.guard import GuardedApplication
    from opencode_env.openenv.tbench2.environment import Tbench2Environment
    from opencode_env.openenv.tbench2.models import Tbench2Action, Tbench2Observation
    from opencode_env.openenv.tbench2.settings import read_settings

    try:
        read_settings()
        sessions = int(os.environ.get("MAX_CONCURRENT_ENVS", "8"))
    except ValueError as error:
        raise SystemExit(str(error)) from error
    application = create_app(
        Tbench2Environment, Tbench2Action, Tbench2Observation, env_name="tbench2_env", max_concurrent_envs=sessions
    )
    guarded = GuardedApplication(application, None, _MAX_REQUEST_BYTES)
    # uvicorn raises the signal again when it has stopped, and Python's own answer would leave the sandboxes behind.
    signal.signal(signal.SIGTERM, _exit)
    # Whoever reaches it runs commands on this machine's sandboxes, so nobody beyond this machine does.
    uvicorn.run(guarded, host="127.0.0.1", port=port, log_level="info", ws_max_size=_MAX_REQUEST_BYTES)


def _exit(number: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()

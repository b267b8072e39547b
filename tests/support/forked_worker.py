"""What pytest-xdist executes as the Python of a worker: it has the process forked that is the worker, on its streams.

Run: python -I -S forked_worker.py SOCKET PYTHON …; where nothing can be forked, `PYTHON …` is executed.
"""

import json
import os
import socket
import sys

EXECUTED_WITH = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "LINES", "COLUMNS")
"""Variables with which a program is not forked; none of them matters to a worker."""


def main(address: str, python: str, *arguments: str) -> int:
    """Fork the worker, and end as it does."""
    environment = {name: value for name, value in os.environ.items() if name not in EXECUTED_WITH}
    argv = [python, os.path.abspath(__file__)]
    asked = {"argv": argv, "directory": os.getcwd(), "environment": environment}
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        socket.send_fds(connection, [b" "], [0, 1, 2])
        connection.sendall(json.dumps(asked).encode())
        connection.shutdown(socket.SHUT_WR)
        lines = connection.makefile()
        if lines.readline():
            # The worker's end is seen where nobody else holds its streams.
            os.close(0)
            os.close(1)
            return int(json.loads(lines.readline() or '{"code": 1}')["code"]) & 0xFF
    except KeyboardInterrupt:  # the worker ends with its streams
        return 130
    except OSError:
        pass
    os.execv(python, [python, *arguments])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(*sys.argv[1:]))
    exec(eval(sys.stdin.readline()))  # what execnet has a Python do

"""What pytest-xdist executes as the Python of a worker: it has the process forked that is the worker, on its streams.

Run: python -I -S forked_worker.py SOCKET PYTHON …; where nothing can be forked, `PYTHON …` is executed.
"""

import os
import socket
import sys


def main(address: str, python: str, *arguments: str) -> int:
    """Fork the worker, and end when it does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        socket.send_fds(connection, [b" "], [0, 1, 2])
        if connection.recv(1):
            # The worker's end is seen where nobody else holds its streams.
            os.close(0)
            os.close(1)
            connection.recv(1)
            return 0
    except KeyboardInterrupt:  # the worker ends with its streams
        return 130
    except OSError:
        pass
    os.execv(python, [python, *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

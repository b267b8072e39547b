"""Leave a daemon behind that has no tie to its starter: double fork, own session, and (with "bare") no environment."""

import os
import sys
import time


def main() -> None:
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in range(3):
        os.close(fd)
    if "bare" in sys.argv:
        os.execve("/bin/sleep", ["sleep", "12345"], {})
    with open("/tmp/daemon", "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()

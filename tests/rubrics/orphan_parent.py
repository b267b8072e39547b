"""Processes that start math workers and then wait to be killed, or leave without closing their pool.

One for each argument, "wait" or "leave"; prints for each the word, its pid, and those of the workers' parent and of two
workers.
"""

import asyncio
import os
import sys

from opencode_rubrics.math.worker_pool import WorkerPool

from tests.rubrics.math_support import pids_of


async def main(how: str) -> None:
    pool = WorkerPool(2)
    hang = r"(1/3)!+10^{-2000}\sqrt{2}"
    busy = [asyncio.create_task(pool.verify("5", hang, "file", 60)) for _ in range(2)]
    while len(pids_of(pool)) < 3:
        await asyncio.sleep(0.02)
    print(how, os.getpid(), *pids_of(pool), flush=True)
    if how == "leave":  # without closing the pool
        for task in busy:
            task.cancel()
        return
    await asyncio.sleep(60)


if __name__ == "__main__":
    children = []
    for argument in sys.argv[1:]:
        children.append(os.fork())
        if children[-1] == 0:
            asyncio.run(main(argument))
            sys.exit()
    for child in children:
        os.waitpid(child, 0)

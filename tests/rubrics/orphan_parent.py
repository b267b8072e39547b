"""A process that starts math workers and then waits to be killed; prints their pids."""

import asyncio
import sys

from opencode_rubrics.math.worker_pool import WorkerPool


async def main() -> None:
    pool = WorkerPool(2)
    hang = r"(1/3)!+10^{-2000}\sqrt{2}"
    busy = [asyncio.create_task(pool.verify("5", hang, "file", 60)) for _ in range(2)]
    while len(pool.pids) < 3:
        await asyncio.sleep(0.02)
    print(*pool.pids, flush=True)
    if sys.argv[1] == "leave":  # without closing the pool
        for task in busy:
            task.cancel()
        return
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main())

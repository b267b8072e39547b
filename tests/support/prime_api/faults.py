"""What goes wrong with the requests of a test, and the count of all of them by their names."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


@dataclass
class Fault:
    """What happens to requests of one name.

    With a status they are refused; with a `page` that is the answer, as of a proxy on the way, and nothing is done;
    with `lost` they are done, and their answer is cut off; else they only take longer.
    """

    route: str
    """A name as in `Traffic.requests`, such as `create`, `upload` or `Start`; `*` is any."""
    status: int | None = None
    body: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    lost: bool = False
    delay: float = 0.0
    """Seconds between the request and what happens then."""
    times: int = 1
    after: int = 0
    """Requests that it is meant for and that go well before."""
    share: float = 1.0
    """Of the requests that it is meant for; which ones, chance says."""


class Traffic:
    """Counts requests and bytes, and lets faults happen.

    Args:
        seed: of the chance with which faults with a `share` happen.
    """

    def __init__(self, seed: int) -> None:
        self.requests: Counter[str] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.faults: list[Fault] = []
        self.happened = 0
        self._chance = random.Random(seed)

    def _due(self, route: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.route in (route, "*") and self._chance.random() < fault.share:
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                self.happened += 1
                return fault
        return None

    async def pass_on(self, route: str, app: App, scope: Any, receive: Any, send: Any) -> None:
        """Have `app` answer a request, unless a fault is due."""

        async def receiving() -> Any:
            message = await receive()
            self.received_bytes += len(message.get("body", b""))
            return message

        async def sending(message: Any) -> None:
            self.sent_bytes += len(message.get("body", b""))
            await send(message)

        fault = self._due(route)
        if fault is not None and fault.delay:
            receive = await _taken(receive)
        self.requests[route] += 1
        if fault is not None:
            await asyncio.sleep(fault.delay)
        if fault is not None and fault.lost:
            await app(scope, receiving, _nowhere)
            await _cut(send)
        elif fault is not None and fault.page:
            await send_answer(sending, 200, b"text/html", fault.page.encode())
        elif fault is not None and fault.status is not None:
            await answer(sending, fault.status, fault.body or {"detail": f"{route} was refused by the test"})
        else:
            await app(scope, receiving, sending)


async def answer(send: Any, status: int, body: dict[str, Any]) -> None:
    """Answer with JSON."""
    await send_answer(send, status, b"application/json", json.dumps(body).encode())


async def send_answer(send: Any, status: int, kind: bytes, data: bytes) -> None:
    """Answer with data of a kind."""
    headers = [(b"content-type", kind), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _taken(receive: Any) -> Callable[[], Awaitable[Any]]:
    """Take a request whole, so that it is carried out even if who sent it is gone by then."""
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    left = iter(messages)

    async def again() -> Any:
        for message in left:
            return message
        return await receive()

    return again


async def _nowhere(message: Any) -> None:
    """Takes what nobody shall see."""


async def _cut(send: Any) -> None:
    """Promise more than is sent: the server closes the connection then."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})

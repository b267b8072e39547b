"""The order desk: finds the customer's order, does what the rules allow, and tells the customer."""

import json
import re

from opencode_env.scripted_model.reply import Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest

_CUSTOMER = re.compile(r"^(\w+) writes: ", re.MULTILINE)
_WISHES = (
    (re.compile(r"I ordered a (\w+), and would like it in (\w+) instead"), "change_colour", "open"),
    (re.compile(r"I ordered a (\w+) and do not want it any more"), "cancel_order", "open"),
    (re.compile(r"send back the (\w+)"), "accept_return", "delivered"),
)


def play(request: ChatRequest) -> Reply:
    """Look, do, tell: one turn for each; what the customer says then changes nothing."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if not seen:
        (customer,) = _CUSTOMER.findall(request.prompt)[:1]
        return Reply(text="I look for the order.", tool_calls=(_call("find_orders", customer=customer),))
    if len(seen) > 1:
        return Reply(text="It is done.")
    for wish, name, state in _WISHES:
        if (found := wish.search(request.prompt)) is None:
            continue
        order = next(one for one in json.loads(seen[0])["orders"] if one["thing"] == found[1])
        if order["state"] == state:
            more = {"colour": found[2]} if name == "change_colour" else {}
            return Reply(text="I do it.", tool_calls=(_call(name, number=order["number"], **more),))
    return Reply(text="I am sorry, that cannot be done any more.")


def _call(tool: str, **arguments: str | int) -> ToolCall:
    return ToolCall(name=f"order_desk_{tool}", arguments=dict(arguments))

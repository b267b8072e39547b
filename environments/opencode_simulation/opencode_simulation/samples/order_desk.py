"""The order desk of a shop: a customer wants something, and the state of the orders at the end is what counts.

The tools do what they are told, also against the rules of the desk. When the agent has stopped, or the customer says
stop, the reward is 1 if every order is as the customer's wish and the rules want it, else 0.
"""

import copy
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import JsonValue

from opencode_simulation.errors import InvalidAction
from opencode_simulation.world import Step, World, tool

Colour = Literal["red", "blue", "green", "white"]
_COLOURS: tuple[Colour, ...] = ("red", "blue", "green", "white")
_CUSTOMERS = ("Ada", "Bela", "Chen", "Dora", "Emil", "Farah")
_THINGS = ("lamp", "chair", "kettle", "rug", "clock", "shelf")
_WISHES = {
    "colour": "I ordered a {thing}, and would like it in {colour} instead.",
    "cancel": "I ordered a {thing} and do not want it any more. Please cancel the order.",
    "return": "I would like to send back the {thing} that I got from you.",
    "late": "I ordered a {thing}, and would like it in {colour} instead. It is on its way already, I think.",
}
_STATES = {"colour": "open", "cancel": "open", "return": "delivered", "late": "shipped"}


@dataclass
class Order:
    number: int
    customer: str
    thing: str
    colour: Colour
    state: str
    """`open`, `shipped`, `delivered`, `cancelled` or `returned`."""


class OrderDesk(World):
    """Four tools over the orders of six customers."""

    PROMPT = (
        "You work at the order desk of a shop. An open order can get another colour or be cancelled, a delivered one "
        "can be returned; of a shipped one nothing can be changed, and no customer's order concerns another. Do what "
        "the customer wants as far as these rules allow it, with your tools only, and tell the customer.\n\n"
        "{observation}"
    )

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        """Any wish: `colour`, `cancel`, `return`, or `late`, which the rules do not allow."""
        return {"wish": None}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> str:
        """Make the orders and the wish; the first observation is what the customer writes."""
        source = random.Random(seed)
        self._wish = str(config["wish"] or source.choice(sorted(_WISHES)))
        if self._wish not in _WISHES:
            raise ValueError(f"there is no wish {self._wish!r}: there are {', '.join(_WISHES)}")
        people, things = source.sample(_CUSTOMERS, 6), source.sample(_THINGS, 6)
        states = [_STATES[self._wish], *source.choices(("open", "shipped", "delivered"), k=5)]
        numbers = source.sample(range(1000, 9999), 6)
        orders = [
            Order(number, name, thing, source.choice(_COLOURS), state)
            for number, name, thing, state in zip(numbers, people, things, states, strict=True)
        ]
        mine = orders[0]
        orders[1].customer = mine.customer  # who has another order, which stays as it is
        colour = source.choice([one for one in _COLOURS if one != mine.colour])
        self._orders = {order.number: order for order in sorted(orders, key=lambda order: order.number)}
        self._wanted = copy.deepcopy(self._orders)
        if self._wish == "colour":
            self._wanted[mine.number].colour = colour
        elif self._wish != "late":
            self._wanted[mine.number].state = {"cancel": "cancelled", "return": "returned"}[self._wish]
        return f"{mine.customer} writes: Hello! {_WISHES[self._wish].format(thing=mine.thing, colour=colour)}"

    @tool
    def find_orders(self, customer: str) -> Step:
        """List the orders of a customer."""
        return Step({"orders": [asdict(order) for order in self._orders.values() if order.customer == customer]})

    @tool
    def change_colour(self, number: int, colour: Colour) -> Step:
        """Give an order another colour."""
        self._order(number).colour = colour
        return Step(asdict(self._order(number)))

    @tool
    def cancel_order(self, number: int) -> Step:
        """Cancel an order."""
        self._order(number).state = "cancelled"
        return Step(asdict(self._order(number)))

    @tool
    def accept_return(self, number: int) -> Step:
        """Take back what was delivered."""
        self._order(number).state = "returned"
        return Step(asdict(self._order(number)))

    def finish(self) -> Step:
        """Compare the orders with what they should be."""
        wrong = [number for number, order in self._orders.items() if order != self._wanted[number]]
        return Step("", float(not wrong), info={"wish": self._wish, "wrong_orders": wrong})

    def _order(self, number: int) -> Order:
        if number not in self._orders:
            raise InvalidAction(f"there is no order {number}")
        return self._orders[number]

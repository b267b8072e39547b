"""How a scripted model resumes a sub-agent: it names the session that an earlier call began."""

import re
from collections.abc import Iterable

TASK = "@task {}@"
"""Stands in the arguments of a call for the id of a sub-agent's session, by its number."""

_BEGAN = re.compile(r'(?:<task id="|\(task_id: )(ses_\w+)')


def has_tasks(text: str) -> bool:
    """Whether a sub-agent's session is to be named in a text."""
    return TASK.partition("{")[0] in text


def with_tasks(text: str, results: Iterable[str]) -> str:
    """The text with the ids of the sessions, which stand in the results of the calls that began them."""
    for number, identity in enumerate(found for result in results for found in _BEGAN.findall(result)):
        text = text.replace(TASK.format(number), identity)
    return text

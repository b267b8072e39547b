"""What logs and errors of every package say: the one name of a task, the first error of a group, and no password or key
that an address holds."""

import re

import verifiers.v1 as vf

_SHOWN = 80
"""Characters of a prompt that name a task; `opencode_runs.traces.record` has the same."""
_LONGEST = 512
"""Of a user's name or password in an address."""
_USER = re.compile(
    rf"(?<![^\s=,;('\"\[<])(\w[\w+.-]{{0,20}}://)?[^\s/@:'\"]{{0,{_LONGEST}}}:(?!//)[^\s@'\"]{{0,{_LONGEST}}}@"
    rf"|(?<=://)[^\s/?#@'\"]{{1,{_LONGEST}}}@"
)
"""Also where a password holds a slash, and where there is no scheme, as a proxy's variable may have it."""
_QUERY = re.compile(
    r"([?&][\w.%-]{0,32}?(?:key|token|secret|sig|signature|pass|password|auth|credential|code)=)[^\s&#'\"]+", re.I
)


def task_name(data: vf.TaskData) -> str:
    """Return what people call a task: its id, its name, the beginning of its prompt, or its number."""
    prompt = data.prompt
    if isinstance(prompt, list):
        prompt = prompt[-1].content if prompt and isinstance(prompt[-1].content, str) else None
    return data.id or data.name or (" ".join(prompt[:_SHOWN].split()) if prompt else "") or str(data.idx)


def first_error(error: BaseException) -> BaseException:
    """Return the error itself, or of a group the first error in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def without_credentials(text: str) -> str:
    """An address, or a text that holds some, without users, their passwords, and the values of keys in a query."""
    return _QUERY.sub(r"\1[key]", _USER.sub(lambda found: found[1] or "", text))

"""Scripted models that solve the needle samples by recursion, each in another way, and one that reads by itself."""

import re

from opencode_env.scripted_model import ChatRequest, Reply

from tests.rlm.episodes import task
from tests.support.replies import bash, call

UNWELL = ("My chest has been", "These hands shake", "Two stairs and I", "My head has been")
ASK_EACH = """\
for file in {files}; do printf '{{"prompt": "{prompt}", "files": ["%s"]}}\\n' "$file"; done | llm --batch | {then}"""


def recursive(request: ChatRequest, /) -> Reply:
    """The main model: every sample by another of the three ways."""
    if "lighthouse keeper" in request.prompt:
        return _diary(request)
    if "40 letters" in request.prompt:
        return _letters(request)
    return _minutes(request)


def _diary(request: ChatRequest) -> Reply:
    question = "To whom does an animal of the writer go for good? Answer a name, or `none`."
    if request.turn == 0:
        return call("llm_subcall", prompt=question, files=["/app/diary.txt"])
    if request.turn == 1:
        assert "error: " in _last_result(request), "the whole diary must not fit into a sub-LLM either"
        return bash("split -C 60k -d -a 3 diary.txt part- && ls part-*")
    if request.turn == 2:
        return call("llm_subcall", prompt=question, files=_last_result(request).split(), per_file=True)
    names = set(re.findall(r"\] ([A-Z]\w+ [A-Z]\w+)", _last_result(request)))
    return bash(f"printf %s '{names.pop()}' > answer.txt") if request.turn == 3 else Reply(text="done")


def _letters(request: ChatRequest) -> Reply:
    if request.turn:
        return Reply(text="done")
    then = "grep -c yes > answer.txt"
    return bash(ASK_EACH.format(files="letters/*.txt", prompt="Is the writer unwell? yes or no", then=then))


def _minutes(request: ChatRequest) -> Reply:
    if request.turn == 0:
        return task("Read the minutes: who made the bell fall, and where does that person live now?")
    found = re.search(r"lives in (\w+ \w+)", _last_result(request))
    if request.turn == 1 and found:
        return bash(f"echo {found[1]} > answer.txt")
    return Reply(text="done")


def reader(request: ChatRequest, /) -> Reply:
    """The sub model: knows nothing but what its prompt holds; as a sub-agent it asks one-shot readers."""
    if request.tools:
        return _sub_agent(request)
    text = request.user_texts[-1]
    if "animal" in text:
        found = re.search(r"mare .*?; (\w+ \w+) leads", text)
        return Reply(text=found[1] if found else "none")
    if "unwell" in text:
        return Reply(text="yes" if any(words in text for words in UNWELL) else "no")
    hits = re.findall(
        r"the hands on the rope were (.*?)'s|^(.*) has moved; .*? goes to the (.*?) (?:behind|from)", text, re.M
    )
    return Reply(text="; ".join("|".join(hit) for hit in hits) or "none")


def _sub_agent(request: ChatRequest) -> Reply:
    if request.turn == 0:
        return bash(ASK_EACH.format(files="minutes/*.txt", prompt="bell or moved?", then="grep -v none"))
    notes = _last_result(request)
    culprit = re.search(r'"answer":"([^|"]+)\|', notes)
    assert culprit, notes
    home = re.search(rf"\|{culprit[1]}\|([\w ]+)", notes)
    return Reply(text=f"{culprit[1]} lives in {home[1] if home else 'nowhere'}")


def reading_alone(request: ChatRequest, /) -> Reply:
    """A main model that does not recurse: it reads the diary piece by piece."""
    first = 1 + 400 * request.turn
    return bash(f"sed -n {first},{first + 399}p /app/diary.txt")


def _last_result(request: ChatRequest) -> str:
    return next(message.text for message in reversed(request.body.messages) if message.role == "tool")

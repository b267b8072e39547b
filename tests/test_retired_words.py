"""Words that were retired stay out of names, errors, logs, docstrings and documents: the field's terms stand there."""

import re
from pathlib import Path

from tests.test_structure import PACKAGES, ROOT

RETIRED = {
    r"ghosts?(?!_answers)": "partial answers",
    r"machinery": "infrastructure",
    r"doorways?|wardens?": "relays, supervisor",
    r"strangers?": "unauthenticated requests, other users",
    r"hal(?:f|ves) of (?:a )?characters?|half a character": "a lone surrogate",
    r"make_writable": "replace_surrogates",
    r"aftermath": "exit",
    r"has_hands|is_hands": "has_called_tool",
    r"harness_files": "npm",
    r"(?:ConversingEnv|EquippedEnv)\w*": "features (`CliAgentEnvConfig.features`)",
    r"(?<=\S )(?<!there )(?<!There )(?:is|are) none\b": "is not …",
    r"(?:is|are) (?:nobody's|nothing that)": "is not …",
    r"can be no": "cannot be",
    r"ways? to the (?:model|endpoint)s?": "the path to the model, a call's path",
    r"(?<=\S )(?<!there )(?<!There )(?:is|are) no(?= (?!longer\b))": "is not a …",
    r"in_turns?|in turns?(?=[,;]|\.(?!\w))|in turn$|tak(?:e|es|en|ing) turns": "one after the other, alternately",
    r"turns? of the (?:event )?loop": "iteration of the loop",
    r"(?:waits?|waited|had|has|is|waits? for|waiting for) (?:its|their) turn(?!')": "a place, the rate",
    r"[Tt]urn(?:s|ed|ing)?(?: [\w'`-]+){1,8} into|[Tt]urn(?:s|ed|ing)? (?:into|off|away)": "make … of",
}
"""What is retired, as a pattern, and what is said instead."""

KEPT = {
    "names in traces": re.compile(r"\"ghosts\"|ghost_answers"),
    "corpora of mathematics, by their authors": re.compile(r"`?\"?stranger(?:_2)?[`\"]"),
}


def _texts() -> list[Path]:
    folders = [*PACKAGES.values(), *(ROOT / name for name in ("tests", "examples", "benchmarks", "scripts"))]
    code = [path for folder in folders for kind in ("*.py", "*.sh") for path in folder.rglob(kind)]
    front = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages = [*(ROOT / "docs").rglob("*.md"), *(folder.parent / "README.md" for folder in PACKAGES.values())]
    return [path for path in {*code, *front, *pages} if path.exists() and path != Path(__file__)]


def test_no_retired_word_is_used() -> None:
    pattern = re.compile("|".join(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])" for word in RETIRED))
    found = []
    for path in _texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for kept in KEPT.values():
                line = kept.sub("", line)
            if match := pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]!r}")
    assert not found, "\n".join(["RETIRED says what to write", *sorted(found)])

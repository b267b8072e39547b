"""What stands before a Python answer: the names that problem sets promise, as far as the answer mentions them.

LiveCodeBench, APPS and TACO import all names of these modules, LeetCode's problems those of nine of them; their
references name `pairwise`, `inf` or `List` without an import. The graders of all of them raise the limit of recursion.
"""

import builtins
import re

# In the order in which they are imported: of names that two have, the later one's counts, as there.
_MODULES = (
    *("string", "re", "datetime", "typing", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
)
_NEWER = {"batched": "itertools", "fma": "math", "sumprod": "math"}
"""Names that the sandbox's Python may have and this one may lack."""
_LIBRARIES = (("numpy", "np"), ("pandas", "pd"))
_RECURSION = "import sys; sys.setrecursionlimit(600000)"
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:[ \t]*\.)?")
_FUTURE = re.compile(r"^from __future__ import", re.MULTILINE)


def _public(module: str) -> list[str]:
    found: dict[str, object] = {}
    exec(f"from {module} import *", found)
    return [name for name in found if not name.startswith("__")]


PROMISED = {name: module for module in _MODULES for name in _public(module) if not hasattr(builtins, name)} | _NEWER
"""The module of each name that an answer may use without importing it."""


def with_imports(code: str) -> str:
    """A Python answer behind one line that imports what problem sets promise, as far as the answer mentions it, and
    lets it recurse deeply. Without a byte order mark; as it is where it must come first itself."""
    code = code.removeprefix("\ufeff")
    if _FUTURE.search(code):
        return code
    found = _WORD.findall(code)
    looked_into = {word.rstrip(" \t.") for word in found if word.endswith(".")}
    names = {word for word in found if not word.endswith(".")} | looked_into.difference(_MODULES)
    # Whole modules: the sandbox's Python may lack a name that this one has. Then builtins get their names back.
    whole = [module for module in _MODULES if any(PROMISED.get(name) == module for name in names)]
    stars = [f"from {module} import *" for module in (*whole, *(["builtins"] if whole else []))]
    # `datetime`, `bisect`, `copy`, `random`: a module where the answer looks into it, else what is in there.
    modules = [f"import {name}" for name in _MODULES if name in looked_into or name in names.difference(PROMISED)]
    # A library may be missing, and its short name may be the answer's own.
    tried = [f"import {library} as {name}" for library, name in _LIBRARIES if name in looked_into]
    guarded = [f"exec('try: {statement}\\nexcept ImportError: pass')" for statement in tried]
    return "; ".join([_RECURSION, *stars, *modules, *guarded]) + "\n" + code

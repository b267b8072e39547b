"""What a Python answer finds imported already, as problem sets promise it.

Invariant: only what the answer mentions is imported, so that an answer that imports for itself pays for nothing more.
"""

import re

_NAMES = {
    **{name: f"import {name}" for name in ("bisect", "collections", "copy", "datetime", "functools", "heapq")},
    **{name: f"import {name}" for name in ("itertools", "math", "operator", "random", "re", "string", "sys")},
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque"), "from collections import *"),
    **dict.fromkeys(("Any", "Callable", "Deque", "Dict", "Iterable", "Iterator", "List"), "from typing import *"),
    **dict.fromkeys(("Optional", "Sequence", "Set", "Tuple", "Union"), "from typing import *"),
    **dict.fromkeys(("cache", "cmp_to_key", "lru_cache", "reduce"), "from functools import *"),
    **dict.fromkeys(("heapify", "heappop", "heappush", "nlargest", "nsmallest"), "from heapq import *"),
    **dict.fromkeys(("bisect_left", "bisect_right", "insort"), "from bisect import *"),
    **dict.fromkeys(("accumulate", "chain", "combinations", "permutations", "product"), "from itertools import *"),
    **dict.fromkeys(("ceil", "floor", "gcd", "inf", "sqrt"), "from math import *; from builtins import pow"),
}
_LIBRARIES = (("numpy", "np"), ("pandas", "pd"))
_FUTURE = re.compile(r"^from __future__ import", re.MULTILINE)


def with_imports(code: str) -> str:
    """The answer behind one line of imports, without a byte order mark; as it is where it must come first itself."""
    code = code.removeprefix("\ufeff")
    if _FUTURE.search(code):
        return code
    words = set(re.findall(r"[A-Za-z_]\w*", code))
    needed = dict.fromkeys(statement for name, statement in _NAMES.items() if name in words)
    # A library may be missing, and its short name may be the answer's own.
    tried = [f"import {library} as {name}" for library, name in _LIBRARIES if re.search(rf"\b{name}\.", code)]
    guarded = [f"exec('try: {statement}\\nexcept ImportError: pass')" for statement in tried]
    return "; ".join([*needed, *guarded]) + "\n" + code if needed or guarded else code

"""The packages that read the logs of SWE-bench, SWE-smith and Multi-SWE, with the tests' repositories registered.

The packages themselves stand in environments of their own, of 400 MB: `make test-whole` makes them. In `make test`
small modules of the same names stand for them.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from opencode_rubrics.swe.foreign_parsers import variable_of

from tests.support.other_python import python_with
from tests.support.sizes import WHOLE
from tests.swe.repositories import PYTEST, REPOSITORIES, write_files

ENVIRONMENTS = {
    "swesmith": ("swesmith==0.0.9", "swebench==4.1.0", "docker", "python-dotenv", "ghapi", "unidiff"),
    "swebench": ("swebench==5.0.2", "multi-swe-bench==1.1.2"),
}
REGISTERED = """
import runpy, sys
names = {names!r}
def smith():
    from dataclasses import make_dataclass
    from swesmith.profiles import registry
    from swesmith.profiles.python import PythonProfile
    for name in names:
        fields = dict(owner="org", repo=name, commit="12345678" * 5, test_cmd={command!r})
        made = make_dataclass(name, [(key, str, value) for key, value in fields.items()], bases=(PythonProfile,))
        registry.register_profile(made)
def multi():
    import re
    import multi_swe_bench.harness
    from multi_swe_bench.harness.instance import Instance
    from multi_swe_bench.harness.test_result import mapping_to_testresult
    class Suite(Instance):
        def __init__(self, pr, config):
            self._pr = pr
        def parse_log(self, log):
            found = re.findall(r"^(PASSED|FAILED|ERROR) (\\S.*?)(?: - .*)?$", log, re.M)
            return mapping_to_testresult({{test: status for status, test in found}})
    for name in names:
        Instance.register("org", name)(Suite)
{family}()
runpy.run_path(sys.argv[1], run_name="__main__")
"""
COMMAND = f"{PYTEST} -v"
STANDING_IN = {
    "swesmith/__init__.py": "",
    "swesmith/profiles.py": f"""
import re
class Profile:
    def log_parser(self, log):
        return dict(re.findall(r"^(\\S+::\\S+) (PASSED|FAILED|ERROR)", log, re.M))
    def get_test_cmd(self, row):
        return {COMMAND!r}, []
class registry:
    get = get_from_inst = staticmethod(lambda named: Profile())
""",
    "multi_swe_bench/__init__.py": "",
    "multi_swe_bench/harness/__init__.py": "",
    "multi_swe_bench/harness/image.py": "from types import SimpleNamespace as Config\n",
    "multi_swe_bench/harness/pull_request.py": "from types import SimpleNamespace as Base\nPullRequest = Base\n",
    "multi_swe_bench/harness/instance.py": """
import re
from types import SimpleNamespace as Told
class Suite:
    def parse_log(self, log):
        found = re.findall(r"^(PASSED|FAILED|ERROR) (\\S.*?)(?: - .*)?$", log, re.M)
        return Told(_tests={test: Told(value=status[:4]) for status, test in found})
class Instance:
    create = staticmethod(lambda request, config: Suite())
""",
}


def pythons(root: Path) -> Mapping[str, str]:
    """The variables that name Pythons with these packages, or what stands for them, made below `root`."""
    found = {}
    families = ("swesmith", "swesmith", "smith"), ("swebench", "swebench", "int"), ("multi-swe", "swebench", "multi")
    for family, place, register in families:
        if WHOLE:
            program = root / f"registering_{register}.py"
            names = [repository.name for repository in REPOSITORIES]
            program.write_text(REGISTERED.format(names=names, family=register, command=COMMAND))
            started = f"exec {python_with(place, *ENVIRONMENTS[place])} {program}"
        else:
            started = f"PYTHONPATH={root} exec {sys.executable}"
        python = root / f"python-{family}"
        python.write_text(f'#!/bin/sh\n{started} "$@"\n')
        python.chmod(0o755)
        found[variable_of(family)] = str(python)
    if not WHOLE:
        write_files(root, STANDING_IN)
    return found

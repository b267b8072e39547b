"""The command `python -m opencode_swe.convert ROWS NEW_ROWS`: rows of SWE-bench as they were before release 5.

They get what later rows say themselves: `image`, `eval_script`, `log_parser`, `eval_type`. That knowledge was a table
in `swebench` up to 4.1.0, which needs packages that do not fit beside ours: `uv` runs it in an environment of its own,
once. The new rows are read with `swebench` 5.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files

PACKAGE = "swebench==4.1.0"
_NAMES = (
    "Automattic/wp-calypso apache/druid apache/lucene astral-sh/ruff astropy/astropy axios/axios babel/babel "
    "briannesbitt/carbon burntsushi/ripgrep caddyserver/caddy chartjs/Chart.js diegomura/react-pdf django/django "
    "facebook/docusaurus faker-ruby/faker fastlane/fastlane fluent/fluentd fmtlib/fmt gin-gonic/gin gohugoio/hugo "
    "google/gson hashicorp/terraform immutable-js/immutable-js javaparser/javaparser jekyll/jekyll "
    "jordansissel/fpm jqlang/jq laravel/framework markedjs/marked marshmallow-code/marshmallow "
    "matplotlib/matplotlib micropython/micropython mrdoob/three.js mwaskom/seaborn nlohmann/json nushell/nushell "
    "pallets/flask php-cs-fixer/php-cs-fixer phpoffice/phpspreadsheet preactjs/preact processing/p5.js "
    "projectlombok/lombok prometheus/prometheus psf/requests pvlib/pvlib-python pydata/xarray pydicom/pydicom "
    "pylint-dev/astroid pylint-dev/pylint pytest-dev/pytest pyvista/pyvista reactivex/rxjava redis/redis "
    "rubocop/rubocop scikit-learn/scikit-learn sharkdp/bat sphinx-doc/sphinx sqlfluff/sqlfluff sympy/sympy "
    "tokio-rs/axum tokio-rs/tokio uutils/coreutils valkey-io/valkey vuejs/core "
)
KNOWN = frozenset(_NAMES.split())
"""The repositories that it knows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert a file of rows; the exit code is that of the program in the environment of its own."""
    parser = argparse.ArgumentParser(prog="python -m opencode_swe.convert", description=__doc__)
    parser.add_argument("rows", help="JSONL or a JSON list, as SWE-bench Verified before release 5")
    parser.add_argument("new_rows", help="JSONL, which --env.taskset.dataset takes")
    parser.add_argument("--python", help="a Python that has swebench 4.1.0 already")
    parser.add_argument("--namespace", default="swebench", help="registry namespace of the images (default: swebench)")
    options = parser.parse_args(arguments)
    if options.python:
        python = [options.python]
    elif uv := shutil.which("uv"):
        python = [uv, "run", "--isolated", "--no-project", "--with", PACKAGE, "python"]
    else:
        parser.error(f"uv is not installed; make an environment with {PACKAGE}, and name its Python with --python")
    program = str(files("opencode_swe").joinpath("convert_program.py"))
    return subprocess.run([*python, program, options.rows, options.new_rows, options.namespace], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the reference pages that the code knows: `python scripts/make_reference.py`; with `--check` says what differs.

`docs/reference/options.md` comes from the configuration classes, `commands.md` from the argument parsers and server
settings, the table of `outcomes.md` from the table of outcomes, and those of `api.md` from docstrings.
"""

import argparse
import ast
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from unittest.mock import patch

from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.cli_agent.outcomes import documented
from opencode_rubrics import RubricConfig
from pydantic import BaseModel, ByteSize, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.utils import loaders

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
ENVIRONMENTS = (
    "opencode-env",
    "opencode-rlm",
    "opencode-simulation",
    "opencode-math",
    "opencode-science",
    "opencode-cp",
    "opencode-deepdive",
    "opencode-swe",
)
OURS = ("rollout_sandbox", "opencode_")
SHOWN_OF_VERIFIERS = ("verifiers.v1.configs.agent", "verifiers.v1.configs.retries", "verifiers.v1.configs.env")
COMMANDS = {
    "opencode-report": "opencode_runs.report.__main__",
    "opencode-report export": "opencode_runs.report.__main__ export",
    "opencode-report bundle": "opencode_runs.report.__main__ bundle",
    "opencode-difficulty": "opencode_runs.difficulty.__main__",
    "opencode-trainable": "opencode_runs.trainable.__main__",
    "opencode-turns": "opencode_runs.turns.__main__",
    "opencode-check-tasks": "opencode_env.check_tasks.__main__",
    "opencode-sandboxes": "rollout_sandbox.prime.command_line",
    "mathverdict": "mathverdict.__main__",
    "python -m opencode_env.demo": "opencode_env.demo",
    "python -m opencode_env.scripted_model": "opencode_env.scripted_model.__main__",
    "python -m opencode_simulation": "opencode_simulation.__main__",
    "python -m opencode_search": "opencode_search.__main__",
}
"""The programs by their modules; behind a module, the argument that chooses another parser."""
NOT_SAID_BY_VERIFIERS = {
    ("--env.timeout", "episode"): "Seconds that an episode's `run()` may take. None: no limit.",
    ("--env.timeout", "finalize"): "Seconds that an environment's `finalize()` may take. None: no limit.",
}
"""The meaning of options that have no text of their own."""
SERVERS = {
    "opencode-openenv": ("opencode_openenv.settings", "ServerConfig"),
    "opencode-tbench2": ("opencode_openenv.tbench2.settings", "Tbench2ServerConfig"),
}


class Found(Exception):
    """The parser that a program was about to read its arguments with."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser)
        self.parser = parser


@cache
def docstrings(model: type) -> dict[str, str]:
    """The text under each field of a class, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (isinstance(base, type) and issubclass(base, BaseModel)) or base is BaseModel:
            continue
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = text.value.value
    return found


def cell(text: str) -> str:
    """A text as one cell of a table."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


def code(text: str) -> str:
    """A value in code type, in a cell."""
    return f"`{' '.join(text.split()).replace('|', chr(0xFF5C)) or '(empty)'}`"


def type_name(annotation: Any) -> str:
    """A type as a user would say it."""
    if get_origin(annotation) is Annotated:
        return type_name(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " or ".join(repr(value).strip("'") for value in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_name(one) for one in get_args(annotation)))
    if annotation is type(None):
        return "None"
    if arguments := get_args(annotation):
        name = getattr(get_origin(annotation), "__name__", str(get_origin(annotation)))
        return f"{name}[{', '.join(type_name(one) for one in arguments if one is not Ellipsis)}]"
    return getattr(annotation, "__name__", str(annotation))


def default_of(field: FieldInfo) -> Any:
    """The value that a field has when nobody sets it; `PydanticUndefined` where one must."""
    return field.get_default(call_default_factory=True, validated_data={})


def size_text(value: int) -> str:
    """A number of bytes as one reads it: `8GiB`."""
    return re.sub(r"\.0(?=[A-Z])", "", ByteSize(value).human_readable())


def default_text(value: Any) -> str:
    """A default as the table shows it."""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        named = str(getattr(value, "type", "") or getattr(value, "id", ""))
        return code(named) if named else "its defaults"
    if isinstance(value, ByteSize):
        return code(size_text(value))
    if type(value) is int and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{code(str(value))} ({size_text(value)})"
    dumped = TypeAdapter(Any).dump_python(value, mode="json", fallback=str)
    text = str(dumped)
    return code(text if len(text) <= 60 else f"{text[:57]}…")


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The configuration class that a field holds, where it is one class whose fields are shown."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        options = [one for one in get_args(annotation) if one is not type(None) and not isinstance(one, FieldInfo)]
        options = options[:1] if get_origin(annotation) is Annotated else options
        if len(options) != 1:
            return None
        annotation = options[0]
    shown = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if shown and annotation.__module__.startswith((*OURS, *SHOWN_OF_VERIFIERS)) else None


def sections(prefix: str, model: type[BaseModel], value: Any) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """The options of a class and of the classes in it: a prefix, and rows of name, type, default and meaning."""
    rows, inner = [], []
    texts = docstrings(model)
    for name, field in model.model_fields.items():
        given = getattr(value, name) if isinstance(value, BaseModel) else default_of(field)
        held = type(given) if isinstance(given, BaseModel) and model_in(type(given)) else model_in(field.annotation)
        if held is not None and held is not model:
            inner.append((f"{prefix}.{name.replace('_', '-')}", held, given))
            continue
        if name == "id" and issubclass(model, HarnessConfig):
            continue  # each has its own
        option = name.replace("_", "-")
        text = texts.get(name) or field.description or NOT_SAID_BY_VERIFIERS.get((prefix, option), "")
        rows.append((option, type_name(field.annotation), default_text(given), text))
    yield prefix, rows
    for place in inner:
        yield from sections(*place)


def option_table(rows: list[tuple[str, str, str, str]]) -> str:
    """Rows as a table."""
    lines = ["| option | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {code(kind)} | {default} | {cell(text)} |" for name, kind, default, text in rows]
    return "\n".join(lines)


def of_environment(name: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """All options of an environment, by prefix."""
    found = dict(sections("--env", loaders.env_config_type(name), None))
    return found | dict(sections("--env.taskset", loaders.taskset_config_type(name), None))


def options_page() -> str:
    """The page of options."""
    parts = [
        "# All options",
        "Made from the configuration classes by `scripts/make_reference.py`; do not edit. What is missing here "
        "(`client`, `sampling`, `runtime`, `interception`) is verifiers' own: `vf-eval ID --help` shows it. Times are "
        "in seconds. A `ByteSize` is a number of bytes, or a text such as `512MiB`. "
        "[Configuration](configuration.md) has the options that one sets most.",
    ]
    base = of_environment(ENVIRONMENTS[0])
    for name in ENVIRONMENTS:
        parts.append(f"## {name}")
        shown = base if name == ENVIRONMENTS[0] else {}
        for prefix, rows in of_environment(name).items():
            other = [row for row in rows if row not in base.get(prefix, ())] if not shown else rows
            if other:
                parts += [f"### {name}: `{prefix}.*`", option_table(other)]
        if name != ENVIRONMENTS[0]:
            parts.insert(
                -1 if parts[-1] == f"## {name}" else len(parts), f"Everything else is as in {ENVIRONMENTS[0]}."
            )
    parts += ["## Rubrics", "Under `--env.taskset.task.rubric.*`, with the `type` that the heading names."]
    for config in sorted(rubric_configs(), key=rubric_type):
        for prefix, rows in sections("", config, None):
            parts += [f"### `{rubric_type(config)}`{f': `{prefix[1:]}.*`' if prefix else ''}", option_table(rows)]
    return "\n\n".join(parts) + "\n"


def rubric_type(config: type[RubricConfig]) -> str:
    """The `type` by which a rubric is named."""
    return str(config.model_fields["type"].default)


def rubric_configs() -> set[type[RubricConfig]]:
    """The configuration classes of the rubrics that ship."""
    found, left = set(), [RubricConfig]
    while left:
        for config in left.pop().__subclasses__():
            left.append(config)
            named = get_origin(config.model_fields["type"].annotation) is Literal
            if named and config.__module__.startswith("opencode_rubrics"):
                found.add(config)
    return found


def parser_of(module: str, *arguments: str) -> argparse.ArgumentParser:
    """The parser of a program: what it makes of its first arguments, until it would read them.

    Raises:
        LookupError: it reads its arguments in another way.
    """

    def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise Found(parser)

    main: Callable[[], object] = importlib.import_module(module).main
    with (
        patch.object(argparse.ArgumentParser, "parse_args", stop),
        patch.object(argparse.ArgumentParser, "parse_known_args", stop),
        patch.object(sys, "argv", [module, *arguments]),
    ):
        try:
            main()
        except Found as found:
            return found.parser
    raise LookupError(f"{module} reads no arguments")


def argument_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments of a parser, one row each."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            choices = (
                "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest).upper()
            )
            name += f" {choices}"
        text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        yield f"| {code(name)} | {cell(text)} |"


def command_parts(name: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A command, and its commands."""
    yield f"{'#' * level} `{name}`"
    if parser.description:
        yield " ".join(parser.description.strip().partition("\n\n")[0].split())
    if rows := list(argument_rows(parser)):
        yield "\n".join(["| argument | meaning |", "| --- | --- |", *rows])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, inner in action.choices.items():
                yield from command_parts(f"{name} {sub}", inner, level + 1)


def commands_page() -> str:
    """The page of commands."""
    parts = [
        "# Commands",
        "Made from the programs by `scripts/make_reference.py`; do not edit. Each also has `--help`. `vf-eval` is "
        "verifiers' own, with the [options](options.md) of the environment behind it. `opencode-check-tasks` takes "
        "those, too.",
    ]
    for name, program in COMMANDS.items():
        module, *arguments = program.split()
        parts += command_parts(name, parser_of(module, *arguments), 3 if arguments else 2)
    for name, (module, config) in SERVERS.items():
        settings = importlib.import_module(module)
        for prefix, options in sections("", getattr(settings, config), None):
            inner = f"{prefix[1:]}." if prefix else ""
            named = [(f"--{inner}{option}", kind, default, text) for option, kind, default, text in options]
            parts += [f"### `{name}`: `{prefix[1:]}`" if prefix else f"## `{name}`", option_table(named)]
        if variables := getattr(settings, "VARIABLES", None):
            rows = [f"| `{variable}` | {cell(text)} |" for variable, text in variables.items()]
            parts.append("\n".join(["| variable | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def outcomes_page() -> str:
    """The page of outcomes, its table made anew."""
    page = (REFERENCE / "outcomes.md").read_text()
    table = documented(OpenCodeEnvConfig().outcomes())
    return re.sub(r"\| what happened \| trace \|.*?(?=\n\n)", lambda _: table, page, count=1, flags=re.DOTALL)


def api_page() -> str:
    """The page of public names, its tables made anew; the site shows the whole docstrings below them."""

    def section(found: re.Match[str]) -> str:
        members = re.search(r"members: \[(.*?)\]", found["rest"])
        module = importlib.import_module(found["module"])
        names = members[1].split(", ") if members else sorted(module.__all__)
        rows = [f"| `{name}` | {cell(first_sentence(name, getattr(module, name)))} |" for name in names]
        return "\n".join(
            [f"## {found['module']}", "", "| name | what it is |", "| --- | --- |", *rows, "", found["rest"]]
        )

    page = (REFERENCE / "api.md").read_text()
    return re.sub(r"## (?P<module>[\w.]+)\n\n(?:\|[^\n]*\n)*\n?(?P<rest>:::[^#]*)", section, page)


def first_sentence(name: str, value: object) -> str:
    """The first sentence of a docstring; of what is neither a class nor a function, which kind it is."""
    if not (inspect.isclass(value) or inspect.isroutine(value)) or getattr(value, "__name__", name) != name:
        return "constant" if isinstance(value, str | int) else "type"
    return re.split(r"(?<=\.) ", " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))[0]


PAGES = {
    "options.md": options_page,
    "commands.md": commands_page,
    "outcomes.md": outcomes_page,
    "api.md": api_page,
}


def main() -> int:
    """Write the pages, or compare them; the exit code is 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page differs")
    check = parser.parse_args().check
    differing = []
    for name, made in PAGES.items():
        path, text = REFERENCE / name, made()
        if not path.exists() or path.read_text() != text:
            differing.append(name)
            if not check:
                path.write_text(text)
    if check and differing:
        print(f"docs/reference: {', '.join(differing)} differ: run python scripts/make_reference.py")
    return int(check and bool(differing))


if __name__ == "__main__":
    raise SystemExit(main())

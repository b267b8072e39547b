"""A plugin of pytest that keeps what each test did, apart from what is printed.

It is loaded before anything of the repository, takes with it what it needs to write, and forgets where it writes to.
Plain Python from 2.7 on and pytest from 3.0 on. One line of JSON for each session that began, one when it ended.
"""

# Annotations would end what Python 2.7 can read.
# mypy: ignore-errors

import hashlib
import json
import os
import sys
import types

_open, _write, _close, _dumps, _digest = os.open, os.write, os.close, json.dumps, hashlib.sha256
_PATH, _KEY = os.environ.pop("SUITE_RECORD_PATH", None), os.environ.pop("SUITE_RECORD_KEY", "")
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod, property, type)


def _parts():
    """The functions and classes of the runner's modules, each by where it stands."""
    found = {}
    for name, module in list(sys.modules.items()):
        watched = name.split(".")[0] in ("_pytest", "pluggy", "unittest", "builtins")
        if watched and isinstance(module, types.ModuleType):
            places = [module] + [one for one in list(vars(module).values()) if isinstance(one, type)]
            for place in places:
                for key, value in list(vars(place).items()):
                    if isinstance(value, _FUNCTIONS):
                        found[(name, getattr(place, "__qualname__", ""), key)] = value
    return found


class _Record:
    def __init__(self, config):
        self.config = config
        self.collected = None
        self.states = {}
        self.parts = _parts()

    def tell(self, what):
        text = _dumps(what, sort_keys=True)
        sealed = _digest((_KEY + text).encode("utf-8")).hexdigest()
        handle = _open(_PATH, _FLAGS, 0o600)
        _write(handle, (sealed + " " + text + "\n").encode("utf-8"))
        _close(handle)


_RECORDS = []


def pytest_configure(config):
    if _PATH and not _RECORDS and not hasattr(config, "workerinput") and not hasattr(config, "slaveinput"):
        _RECORDS.append(_Record(config))
        _RECORDS[0].tell({"began": os.getpid()})


def pytest_collection_finish(session):
    if _RECORDS and session.config is _RECORDS[0].config:
        _RECORDS[0].collected = len(session.items)


def _status(report):
    if report.failed:
        return "FAILED" if report.when == "call" else "ERROR"
    if report.skipped:
        return "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED"
    if report.when == "call":
        return "XPASS" if hasattr(report, "wasxfail") else "PASSED"
    return None


def pytest_runtest_logreport(report):
    if _RECORDS:
        status, states = _status(report), _RECORDS[0].states
        if status and states.get(report.nodeid) not in ("FAILED", "ERROR"):
            states[report.nodeid] = status


def pytest_collectreport(report):
    if _RECORDS and report.failed:
        _RECORDS[0].states[report.nodeid] = "ERROR"


def _relative(config, name):
    try:
        return config.cwd_relative_nodeid(name)
    except Exception:  # noqa: BLE001 - whatever a version of pytest lacks
        return name


def pytest_sessionfinish(session, exitstatus):
    if _RECORDS and session.config is _RECORDS[0].config:
        record = _RECORDS[0]
        states = {_relative(record.config, name): status for name, status in record.states.items()}
        now = _parts()
        replaced = sum(now.get(place) is not part for place, part in record.parts.items())
        told = {"ended": os.getpid(), "exit": int(exitstatus), "collected": record.collected, "states": states}
        record.tell(dict(told, replaced=replaced))

"""The runtime under test: what makes its sandboxes, and which options it has."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel, TypeAdapter
from verifiers.v1.runtimes import RuntimeConfig, provision_runtime

from agent_sandbox.provisioning import provisioned

_OURS = {"confined": "agent_sandbox.ConfinedBackend", "podman": "agent_sandbox.PodmanBackend"}


@dataclass(frozen=True)
class Subject:
    """A runtime: `confined`, `podman`, a type that verifiers knows, or the import path of a backend."""

    runtime: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its configuration, for every sandbox."""

    @property
    def backend(self) -> Any:
        """The class at the import path; None for a type of verifiers'.

        Raises:
            ImportError: there is no such module.
            AttributeError: the module has no such class.
        """
        module, dot, name = _OURS.get(self.runtime, self.runtime).rpartition(".")
        return getattr(import_module(module), name) if dot else None

    def config(self, **more: Any) -> Any:
        """The configuration of one sandbox (a `ValidationError`: verifiers knows no such type, or it has no such
        options)."""
        options = {**self.options, **more}
        if self.backend is not None:
            return self.backend.config_class(**options)
        config: BaseModel = TypeAdapter(RuntimeConfig).validate_python({"type": self.runtime, **options})
        return config

    def has(self, option: str) -> bool:
        """Whether its configuration has this option."""
        return option in type(self.config()).model_fields

    @contextlib.asynccontextmanager
    async def box(self, **more: Any) -> AsyncIterator[vf.Runtime]:
        """A started sandbox, which is removed on exit."""
        config = self.config(**more)
        made = provision_runtime(config) if self.backend is None else provisioned(self.backend(config))
        async with made as box:
            yield box

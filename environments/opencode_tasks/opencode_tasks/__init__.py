"""What the environments of this distribution share; each is a package of its own (`opencode_math`, …)."""

from opencode_tasks.presets import PresetTasksetConfig, preset, preset_seat

__all__ = ["PresetTasksetConfig", "preset", "preset_seat"]

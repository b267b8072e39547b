"""Which split a file belongs to, and which split is meant.

File names follow the convention of the Hub: `train.jsonl`, `test-00000-of-00002.parquet`,
`validation/part.parquet`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from opencode_env.taskset.errors import DatasetError, nearest_name

_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
_FIRST_WORD = re.compile(r"[a-z]+")
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}")


def split_of_file(path: Path) -> str | None:
    """The split that the file's name or folder says, or `None`."""
    word = _FIRST_WORD.match(path.stem.lower())
    if word and word.group() in _NAMES:
        return _NAMES[word.group()]
    if path.parent.name.lower() in _NAMES:
        return _NAMES[path.parent.name.lower()]
    shard = _SHARD.fullmatch(path.stem)
    return shard.group("split") if shard else None


def pick_split(name: str, splits: Sequence[str], wanted: str | None) -> str:
    """The split to use of those that dataset `name` has.

    Raises:
        DatasetError: `wanted` is not one of them, or none is wanted and it is not clear which is meant.
    """
    if wanted is not None:
        for split in (wanted, _NAMES.get(wanted, wanted)):
            if split in splits:
                return split
        raise DatasetError(f'dataset "{name}": no split "{wanted}"; {nearest_name(wanted, splits)}')
    if "train" in splits:
        return "train"
    if len(splits) == 1:
        return splits[0]
    raise DatasetError(f'dataset "{name}": set dataset_split, {nearest_name("train", splits)}')

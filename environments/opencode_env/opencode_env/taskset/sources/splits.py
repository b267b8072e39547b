"""Which split a file belongs to, and which split is meant.

File names follow the convention of the Hub: `train.jsonl`, `test-00000-of-00002.parquet`,
`validation/part.parquet`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from opencode_env.taskset.errors import DatasetError, nearest_name

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NAMES = {word: split for split, words in _WORDS.items() for word in words}
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}")


def split_of_file(path: Path) -> str:
    """The split that the file's name or folder says, else `train`."""
    shard = _SHARD.fullmatch(path.stem)
    first_word = re.split(r"[^a-z]", path.stem.lower())[0]
    named = [_NAMES[word] for word in (first_word, path.parent.name.lower()) if word in _NAMES]
    return named[0] if named else shard["split"] if shard else "train"


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

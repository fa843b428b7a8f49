"""Named intermediates of one forward pass: kept by asking, never by hooks."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Record:
    """What a forward pass keeps: name → tensor, in the order computed.

    Attributes:
        only: keep only the names that end in this; everything by default.
        prefix: where the part that is now at work stands, such as "blocks.0.".
        tensors: what was kept.
    """

    only: str = ""
    prefix: str = ""
    tensors: dict[str, Tensor] = field(default_factory=dict)


def keep(record: Record | None, name: str, x: Tensor) -> Tensor:
    """Keep `x` under `name` if a record is asked for; give `x` back unchanged."""
    if record is not None and name.endswith(record.only):
        record.tensors[record.prefix + name] = x
    return x


def within(record: Record | None, part: str) -> Record | None:
    """Give a part of the model its own view of the record: names begin with `part`."""
    if record is None:
        return None
    return Record(record.only, f"{record.prefix}{part}.", record.tensors)

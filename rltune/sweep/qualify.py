"""Qualification: every written byte of a candidate equals the baseline's, on every input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.sweep.buffers import CaseBuffers, digest_bytes

if TYPE_CHECKING:
    import torch

Launch = Callable[[CaseBuffers], None]
"""Launches one candidate on the buffers of a case and waits for it."""

Outputs = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """The first difference between a candidate and the baseline.

    Attributes:
        kind: ``bytes``, ``unstable`` (differs from its own first run) or ``damage``.
        text: one sentence: where, expected and found.
        rows: rows (all axes but the last) of the first differing buffer that differ.
    """

    kind: str
    text: str
    rows: int = 0

    def to_json(self) -> dict[str, Any]:
        """The mismatch as a journal records it."""
        return {"kind": self.kind, "text": self.text, "rows": self.rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineRun:
    """The baseline's bytes on one input.

    Attributes:
        outputs: bytes of every written buffer.
        digests: hex digest of each.
        compared_bytes: bytes compared per candidate run.
        rows: independent rows among them.
    """

    outputs: Outputs
    digests: Mapping[str, str]
    compared_bytes: int
    rows: int


def run_baseline(buffers: CaseBuffers, launch: Launch, repeats: int) -> BaselineRun | Mismatch:
    """Run the baseline and check that it repeats itself, writes all and touches nothing else."""
    first = _run(buffers, launch)
    damage = buffers.damage()
    if damage:
        return Mismatch(kind="damage", text=f"the baseline {damage}")
    for _ in range(repeats - 1):
        found = first_difference(buffers, first, _run(buffers, launch))
        if found:
            return Mismatch(
                kind="unstable", text=f"the baseline does not repeat itself: {found[0]}"
            )
    compared = sum(data.numel() for data in first.values())
    return BaselineRun(
        outputs=first,
        digests={name: digest_bytes(data) for name, data in first.items()},
        compared_bytes=compared,
        rows=max(_row_count(buffers, name) for name in first),
    )


def check_candidate(
    buffers: CaseBuffers, launch: Launch, baseline: BaselineRun, repeats: int
) -> Mismatch | None:
    """Compare a candidate with the baseline over ``repeats`` launches; None if all bytes agree."""
    for repeat in range(repeats):
        outputs = _run(buffers, launch)
        damage = buffers.damage()
        if damage:
            return Mismatch(kind="damage", text=damage)
        found = first_difference(buffers, baseline.outputs, outputs)
        if found:
            text, rows = found
            return Mismatch(kind="unstable" if repeat else "bytes", text=text, rows=rows)
    return None


def _run(buffers: CaseBuffers, launch: Launch) -> dict[str, torch.Tensor]:
    buffers.reset()
    launch(buffers)
    return {name: data.clone() for name, data in buffers.outputs().items()}


def first_difference(
    buffers: CaseBuffers, expected: Outputs, found: Outputs
) -> tuple[str, int] | None:
    """First differing byte as a sentence, and the number of differing rows; None if equal."""
    import torch

    for name, left in expected.items():
        right = found[name]
        if torch.equal(left, right):
            continue
        unequal = left != right
        index = int(unequal.to(torch.uint8).argmax())
        rows = int(unequal.view(_row_count(buffers, name), -1).any(dim=1).sum())
        where = buffers.coordinates(name, index)
        text = (
            f"{name}{list(where)}: expected byte {int(left[index]):#04x}, "
            f"found {int(right[index]):#04x}, {rows} rows differ"
        )
        return text, rows
    return None


def _row_count(buffers: CaseBuffers, name: str) -> int:
    tensor = next(item for item in buffers.kernel.tensors if item.name == name)
    shape = tensor.shape(buffers.axes)
    rows = 1
    # A vector holds one result a row; a matrix one row a first-axis entry.
    for extent in shape if len(shape) == 1 else shape[:-1]:
        rows *= extent
    return max(rows, 1)

"""Which operators, phases and sizes are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "backward"]

DTYPE = "bf16"
"""Element type of every case."""

PHASES: tuple[Phase, ...] = ("forward", "backward")

_INTERMEDIATE_SIZE = 12288
_VOCABULARY = {"vocab_size": 151936, "hidden_size": 4096}
_HEADS = {"q_heads": 32, "k_heads": 8, "head_dim": 128}

_ROWS: Mapping[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "silu": ("intermediate_size", tuple((m, _INTERMEDIATE_SIZE) for m in (8, 64, 4096))),
    "swiglu": ("intermediate_size", tuple((m, _INTERMEDIATE_SIZE) for m in (8, 64, 4096))),
    "rms_norm": ("hidden_size", ((8, 4096), (4096, 4096), (131072, 128))),
    "add_rms_norm": ("hidden_size", ((8, 4096), (64, 4096), (4096, 4096))),
}
_LOGITS: Mapping[str, tuple[int, ...]] = {"logprob": (1, 64, 4096), "ratio_kl": (64, 4096)}
"""Token counts of operators over rows of the vocabulary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One line of the comparison.

    Attributes:
        operator: operator name.
        phase: forward, or backward: gradients alone, given what forward saved.
        axes: sizes by name, in elements.
    """

    operator: str
    phase: Phase
    axes: Mapping[str, int]

    @property
    def shape(self) -> str:
        """The sizes as people write them."""
        sizes = self.axes
        if self.operator == "embedding":
            return f"{sizes['num_tokens']} ids of {sizes['vocab_size']} x {sizes['hidden_size']}"
        if self.operator == "rope":
            heads = f"{sizes['q_heads']} + {sizes['k_heads']}"
            return f"{sizes['num_tokens']} x ({heads}) x {sizes['head_dim']}"
        return " x ".join(map(str, sizes.values()))

    @property
    def name(self) -> str:
        """Unique among all cases."""
        return f"{self.operator} {self.phase} {self.shape}"


def all_cases(operators: Iterable[str] = ()) -> tuple[Case, ...]:
    """Every case in the order of the table; of some operators if any is named."""
    chosen = frozenset(operators)
    return tuple(
        Case(operator=operator, phase=phase, axes=axes)
        for operator, sizes in _sizes().items()
        if not chosen or operator in chosen
        for phase in PHASES
        for axes in sizes
    )


def operator_names() -> tuple[str, ...]:
    """Every operator that has cases."""
    return tuple(_sizes())


def _sizes() -> dict[str, list[dict[str, int]]]:
    found = {
        operator: [{"num_tokens": rows, width: columns} for rows, columns in sizes]
        for operator, (width, sizes) in _ROWS.items()
    }
    found["embedding"] = [{"num_tokens": count, **_VOCABULARY} for count in (32, 8192)]
    found["rope"] = [{"num_tokens": count, **_HEADS} for count in (8, 64, 4096)]
    vocab_size = _VOCABULARY["vocab_size"]
    for operator, counts in _LOGITS.items():
        found[operator] = [{"num_tokens": count, "vocab_size": vocab_size} for count in counts]
    return found

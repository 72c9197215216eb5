"""What a measuring process is asked for; loads no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How often to measure.

    Attributes:
        graph_samples: graph replays.
        eager_samples: rounds of calls.
        calls: calls in a round.
    """

    graph_samples: int
    eager_samples: int
    calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a measuring process is asked for.

    Attributes:
        implementations: in the order in which each case measures them.
        operators: of these operators; empty for all.
        device: ``cpu`` for the interpreter, else such as ``cuda:0``.
        effort: how often to measure.
    """

    implementations: tuple[str, ...]
    operators: tuple[str, ...]
    device: str
    effort: Effort

    def to_json(self) -> str:
        """The request as its process reads it."""
        effort = self.effort
        return json.dumps(
            {
                "implementations": self.implementations,
                "operators": self.operators,
                "device": self.device,
                "effort": [effort.graph_samples, effort.eager_samples, effort.calls],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        graph_samples, eager_samples, calls = data["effort"]
        return cls(
            implementations=tuple(data["implementations"]),
            operators=tuple(data["operators"]),
            device=data["device"],
            effort=Effort(graph_samples=graph_samples, eager_samples=eager_samples, calls=calls),
        )

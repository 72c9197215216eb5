"""Operators for LLM post-training, each with a fixed launch and a space of candidates.

Importing this package reads the bundles that fit, unless ``RLTUNE_MODE`` is
``off``; the operators themselves load on first use::

    from rltune_kernels.rms_norm import rms_norm
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping

from rltune.core.operator import OperatorSpec

OPERATORS: Mapping[str, str] = {
    "silu": "rltune_kernels.silu",
    "swiglu": "rltune_kernels.swiglu",
    "rms_norm": "rltune_kernels.rms_norm",
    "add_rms_norm": "rltune_kernels.add_rms_norm",
    "embedding": "rltune_kernels.embedding",
    "rope": "rltune_kernels.rope",
    "logprob": "rltune_kernels.logprob",
    "ratio_kl": "rltune_kernels.ratio_kl",
    "grpo_norm": "rltune_kernels.grpo_norm",
    "grpo_loss": "rltune_kernels.grpo_loss",
}
"""Package of each operator, by operator name."""


def operator_specs() -> tuple[OperatorSpec, ...]:
    """The declarations of all operators, in the order of ``OPERATORS``."""
    return tuple(importlib.import_module(f"{package}.spec").SPEC for package in OPERATORS.values())


if os.environ.get("RLTUNE_MODE") != "off":
    from rltune import runtime

    runtime.load(operator_specs)

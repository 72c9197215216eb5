"""Liger-Kernel's functions, with the defaults its users get."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from tools.peers.subjects import EPS, Peer

_OFFSET, _CASTING = 0.0, "llama"


def liger_version() -> str:
    """Installed version; empty if Liger-Kernel is not installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return ""
    try:
        return metadata.version("liger-kernel")
    except metadata.PackageNotFoundError:
        return "unknown"


def liger_peers() -> Mapping[str, Peer]:
    """Liger's function of each operator it has under the same definition.

    Raises:
        ImportError: Liger-Kernel is not installed, or has no such functions.
    """
    swiglu = _function("swiglu", "LigerSiLUMulFunction")
    rms_norm = _function("rms_norm", "LigerRMSNormFunction")
    add_rms_norm = _function("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
    embedding = _function("experimental.embedding", "LigerEmbeddingFunction")
    rope = _function("rope", "LigerRopeFunction")
    return {
        "swiglu": Peer(call=swiglu, takes=(0, 1), writes_inputs=True),
        "rms_norm": Peer(
            call=lambda x, weight: rms_norm(x, weight, EPS, _OFFSET, _CASTING),
            takes=(0, 1),
            writes_inputs=True,
        ),
        "add_rms_norm": Peer(
            call=lambda x, residual, weight: add_rms_norm(
                x, residual, weight, EPS, _OFFSET, _CASTING
            ),
            takes=(0, 1, 2),
            writes_inputs=True,
        ),
        "embedding": Peer(call=embedding, takes=(0, 1)),
        "rope": Peer(call=rope, takes=(0, 1, 5, 6), heads_first=True, writes_inputs=True),
    }


def _function(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply
    except AttributeError as error:
        raise ImportError(str(error)) from None

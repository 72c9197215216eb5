"""Launch configs of the fused residual add and RMSNorm: those of RMSNorm.

The sum over a row has RMSNorm's row class, and the added operand is one more tile.
"""

from __future__ import annotations

from rltune_kernels.rms_norm.candidates import (
    row_baseline,
    row_candidates,
    row_constexprs,
    row_control,
    row_grid,
)

__all__ = ["row_baseline", "row_candidates", "row_constexprs", "row_control", "row_grid"]

"""Launch configs of SiLU: the common space of element-wise kernels.

No knob moves a byte: each element is computed alone, and fusion of products and
sums is written out.
"""

from __future__ import annotations

from rltune_kernels._flat import baseline, candidates, constexprs, grid, prune

__all__ = ["baseline", "candidates", "constexprs", "grid", "prune"]

"""Launch configs: the knobs of one launch, frozen and written out in full."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.errors import BundleError

Grid = tuple[int, int, int]
"""Number of programs along x, y and z."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchConfig:
    """The knobs of one launch. Every option is explicit; nothing is left to a default.

    Attributes:
        knobs: the kernel's own tunable constexprs, as sorted (name, value) pairs.
        num_warps: warps per program.
        num_stages: depth of the compiler's software pipelining.
        num_ctas: programs per cluster.
        maxnreg: register limit per thread, or None for the compiler's own choice.
        enable_fp_fusion: False everywhere: a kernel writes ``tl.fma`` where it wants one.
    """

    knobs: tuple[tuple[str, int], ...]
    num_warps: int
    num_stages: int
    num_ctas: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = False

    @classmethod
    def of(
        cls, *, num_warps: int, num_stages: int = 1, maxnreg: int | None = None, **knobs: int
    ) -> LaunchConfig:
        """Build a config from keyword knobs, such as ``of(BLOCK=1024, num_warps=4)``."""
        return cls(
            knobs=tuple(sorted(knobs.items())),
            num_warps=num_warps,
            num_stages=num_stages,
            maxnreg=maxnreg,
        )

    def knob(self, name: str) -> int:
        """Value of the kernel knob ``name``.

        Raises:
            KeyError: the config has no such knob.
        """
        return dict(self.knobs)[name]

    @property
    def candidate_id(self) -> str:
        """Stable id, such as ``BLOCK=1024,w4,s1``; equal configs have equal ids."""
        parts = [f"{name}={value}" for name, value in self.knobs]
        parts += [f"w{self.num_warps}", f"s{self.num_stages}"]
        if self.num_ctas != 1:
            parts.append(f"c{self.num_ctas}")
        if self.maxnreg is not None:
            parts.append(f"r{self.maxnreg}")
        if self.enable_fp_fusion:
            parts.append("fusion")
        return ",".join(parts)

    def options(self) -> dict[str, object]:
        """The compile options of this config, as Triton's compiler names them."""
        return {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "num_ctas": self.num_ctas,
            "maxnreg": self.maxnreg,
            "enable_fp_fusion": self.enable_fp_fusion,
        }

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this config in bundles and journals."""
        return {"knobs": dict(self.knobs), **self.options()}

    @classmethod
    def from_json(cls, value: object, where: str) -> LaunchConfig:
        """Decode what :meth:`to_json` wrote.

        Raises:
            BundleError: a field is missing, unknown or of another type; names ``where``.
        """
        fields = ("knobs", "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
        if not isinstance(value, dict) or set(value) != set(fields):
            raise BundleError(f"{where}: expected an object with {', '.join(fields)}")
        knobs = value["knobs"]
        if not isinstance(knobs, dict):
            raise BundleError(f"{where}.knobs: expected an object")
        for name, number in knobs.items():
            _int(number, f"{where}.knobs.{name}")
        maxnreg = value["maxnreg"]
        fusion = value["enable_fp_fusion"]
        if not isinstance(fusion, bool):
            raise BundleError(f"{where}.enable_fp_fusion: expected true or false")
        return cls(
            knobs=tuple(sorted(knobs.items())),
            num_warps=_int(value["num_warps"], f"{where}.num_warps", 1),
            num_stages=_int(value["num_stages"], f"{where}.num_stages"),
            num_ctas=_int(value["num_ctas"], f"{where}.num_ctas", 1),
            maxnreg=None if maxnreg is None else _int(maxnreg, f"{where}.maxnreg", 1),
            enable_fp_fusion=fusion,
        )


def _int(value: object, where: str, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise BundleError(f"{where}: expected an integer of at least {least}, got {value!r}")
    return value


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below ``a / b``, for positive ``b``."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Smallest power of two that is at least ``n``; 1 for ``n`` of 0 or 1."""
    return 1 << max(0, n - 1).bit_length()

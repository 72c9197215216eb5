"""How many programs a launch has."""

from rltune.core import launch

ELEMENTS_PER_PROGRAM_LIMIT = 1 << 16


def programs(items: int, block: int) -> int:
    if block > ELEMENTS_PER_PROGRAM_LIMIT:
        raise ValueError(f"block {block:>8,d} is above {ELEMENTS_PER_PROGRAM_LIMIT}")
    return launch.ceil_div(items, block)

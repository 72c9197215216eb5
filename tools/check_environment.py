"""Says which packages rltune needs and this interpreter lacks; exit 3 if any.

Run by ``make sweep SYSTEM_SITE=1``, before anything else is set up. Standard library only.
"""

import importlib.util
import sys

NEEDED = ("torch", "triton", "cryptography", "pydantic", "rich", "typer", "zstandard")


def main() -> int:
    """Print one sentence and return the exit status."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return 0
    sys.stderr.write(
        f"This Python ({sys.executable}) lacks {', '.join(missing)}. Put wheels of them into a "
        "folder and run `make sweep SYSTEM_SITE=1 WHEELHOUSE=folder`, or install them first.\n"
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())

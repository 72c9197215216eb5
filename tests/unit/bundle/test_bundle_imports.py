"""What the room loads: what a job imports must stay light."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FORBIDDEN = ("zstandard", "rich", "typer", "click", "pydantic", "torch", "triton", "numpy")
PROGRAM = """
import sys
from rltune.bundle.codec import BundleFile
from rltune.bundle.signing import sign_bundle
from rltune.bundle.trust import load_trust_store
from rltune.bundle.verify import check_signatures
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_room_loads_nothing_a_job_must_not():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *FORBIDDEN],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"

"""``rltune presets``: the list, and the layout of one."""

import json

from tests.support.cli import rltune


def test_list_names_each_preset_with_its_summary():
    done = rltune("presets")
    assert done.returncode == 0
    assert "qwen3-8b" in done.stdout
    assert "smoke" in done.stdout


def test_layout_names_kernels_and_counts():
    rows = json.loads(rltune("presets", "qwen3-8b", "--format", "json").stdout)
    forward = next(row for row in rows if row["kernel"] == "rms_norm/forward")
    assert forward["candidates"].endswith("candidates")
    assert len(rows) == 26

"""The sweep command's own parts; the whole command runs in tests/e2e."""

import subprocess

import pytest

from rltune.cli import sweep as command
from rltune.cli.sweep import device_slug, next_sequence, probe_target
from rltune.errors import EnvironmentUnfitError
from rltune.runtime.device import HostFacts, probe_device
from rltune.sweep.provenance import source_commit
from tests.support.bundles import make_bundle
from tests.support.cli import rltune


def test_device_slug_is_a_file_name():
    assert device_slug("NVIDIA H200") == "nvidia-h200"
    assert device_slug("NVIDIA H100 80GB HBM3 MIG 1g.10gb") == "nvidia-h100-80gb-hbm3-mig-1g-10gb"


def test_sequence_is_one_more_than_that_of_the_stream(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    from rltune.bundle.codec import BundleFile

    with BundleFile.open(path) as bundle:
        found = bundle.decode_predicate()
    (tmp_path / "damaged.rltune").write_bytes(b"not a bundle")
    assert next_sequence(path.parent, found.stream) == found.sequence + 1
    assert next_sequence(path.parent, "another/stream/here") == 1


def test_gpu_that_torch_cannot_use_is_an_error_not_an_interpreter_run(monkeypatch):
    facts = HostFacts(
        driver="580.1", models=(("NVIDIA H200", "9.0"),), interpreter=probe_device(None)
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(command, "probe_host_facts", lambda: facts)
    with pytest.raises(EnvironmentUnfitError, match="NVIDIA H200") as caught:
        probe_target()
    assert caught.value.exit_status == 3


def test_unknown_preset_exits_2_and_lists_the_known_ones(tmp_path):
    done = rltune("sweep", "--preset", "no-such", "--work-dir", tmp_path)
    assert done.returncode == 2
    assert "qwen3-8b" in done.stderr


def test_commit_of_a_checkout_is_its_own(monkeypatch):
    commit, _ = source_commit({"RLTUNE_SOURCE_COMMIT": "0" * 40})
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert commit == head


@pytest.mark.parametrize(
    ("named", "expected"),
    [("a" * 40, ("a" * 40, False)), ("main", ("unknown", True)), ("", ("unknown", True))],
)
def test_commit_outside_a_checkout_is_what_the_signer_names(monkeypatch, tmp_path, named, expected):
    monkeypatch.setattr("rltune.__file__", str(tmp_path / "rltune" / "__init__.py"))
    assert source_commit({"RLTUNE_SOURCE_COMMIT": named}) == expected

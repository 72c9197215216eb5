"""Loading: which bundles are accepted, what a refusal costs in each mode."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle.schema_v1 import Driver
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey
from rltune.errors import (
    BundleError,
    EnvironmentUnfitError,
    OverlapError,
    RltuneError,
    TargetMismatchError,
    TrustError,
    UsageError,
)
from rltune.runtime.loader import load_registry
from rltune.runtime.registry import Accepted, Refused, Superseded
from rltune_kernels.silu.spec import BACKWARD, FORWARD
from tests.unit.runtime.conftest import STREAMS
from tests.unit.runtime.places import Choice, interpreter_target, write_bundle

KEY = ShapeKey.of("fp32", {"intermediate_size": 64})
SELECTED = LaunchConfig.of(BLOCK=512, STEPS=1, STAGES=1, num_warps=4)
CHOICE = Choice(kernel=FORWARD, key=KEY, ranges=((1, 8, SELECTED),))
OTHER = replace(CHOICE, key=ShapeKey.of("fp32", {"intermediate_size": 32}))


def verdicts(registry) -> list[type]:
    return [type(item) for item in registry.findings]


def test_good_bundle_is_accepted_without_a_word(place, caplog):
    path = write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    registry = load_registry(place.environ())
    assert registry.findings == (Accepted(path=str(path), stream=STREAMS[0], sequence=1),)
    assert (
        registry.bundles[0].decisions["silu/forward"][KEY].ranges[0].launch.launch_config
        == SELECTED
    )
    assert caplog.records == []


def spoil(path, key, how: str) -> type[RltuneError]:
    """Put a bad bundle at ``path``; the error strict mode must raise."""
    if how == "missing":
        return BundleError
    if how == "garbage":
        path.write_bytes(b"\x00garbage\n")
        return BundleError
    if how == "folder":
        path.mkdir()
        return BundleError
    signer = {"unsigned": None, "untrusted": Ed25519PrivateKey.generate()}.get(how, key)
    stream = "rltune/test/unknown" if how == "unknown stream" else STREAMS[0]
    sequence = 0 if how == "old" else 1
    write_bundle(path, signer, [CHOICE], stream=stream, sequence=sequence)
    if how == "altered":
        data = path.read_bytes()
        place = data.index(b'"payload":"') + 40
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        return RltuneError
    return TrustError


@pytest.mark.parametrize(
    "how",
    ["missing", "garbage", "unsigned", "untrusted", "unknown stream", "old", "altered"],
)
def test_bad_bundle_costs_one_warning_and_in_strict_mode_the_import(place, caplog, how):
    path = place.bundles / "bad.rltune"
    error = spoil(path, place.key, how)
    good = write_bundle(place.bundles / "good.rltune", place.key, [OTHER])
    environ = place.environ(RLTUNE_BUNDLE_PATH=f"{path}:{good}")
    registry = load_registry(environ)
    assert verdicts(registry) == [Refused, Accepted]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rltune", logging.WARNING)
    assert str(path) in record.getMessage()
    with pytest.raises(error):
        load_registry({**environ, "RLTUNE_MODE": "strict"})


def test_missing_or_open_trust_store_refuses_every_bundle(place, caplog):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    (place.trust / "trust.json").chmod(0o666)
    registry = load_registry(place.environ())
    assert verdicts(registry) == [Refused]
    assert "chmod go-w" in caplog.text
    assert verdicts(load_registry(place.environ(RLTUNE_TRUST_DIR="/no/such"))) == [Refused]


def test_mode_off_reads_nothing(place):
    (place.bundles / "bad.rltune").write_bytes(b"garbage\n")
    registry = load_registry(place.environ(RLTUNE_MODE="off", RLTUNE_PIN_X="bad"))
    assert (registry.findings, registry.bundles, dict(registry.pins)) == ((), (), {})


def test_unknown_mode_is_an_error():
    with pytest.raises(UsageError, match="RLTUNE_MODE=stirct: expected off, load or strict"):
        load_registry({"RLTUNE_MODE": "stirct"})


def test_strict_mode_without_a_bundle_is_an_error(place):
    with pytest.raises(EnvironmentUnfitError, match="no bundle was found"):
        load_registry(place.environ(RLTUNE_MODE="strict"))


def test_strict_mode_with_no_bundle_for_this_machine_lists_the_fields(place):
    target = replace(interpreter_target(), triton="1.0")
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE], target=target)
    assert load_registry(place.environ()).bundles
    with pytest.raises(TargetMismatchError, match=r"triton: expected 1\.0, found"):
        load_registry(place.environ(RLTUNE_MODE="strict"))


def test_higher_sequence_of_a_stream_replaces_the_lower(place):
    old = write_bundle(place.bundles / "b.rltune", place.key, [CHOICE, OTHER], sequence=1)
    new = write_bundle(place.bundles / "a.rltune", place.key, [CHOICE], sequence=2)
    registry = load_registry(place.environ(RLTUNE_MODE="strict"))
    assert [bundle.path for bundle in registry.bundles] == [str(new)]
    assert registry.findings[1] == Superseded(
        path=str(old), stream=STREAMS[0], sequence=1, by=str(new)
    )


def test_same_bundle_at_two_places_is_used_once(place, tmp_path):
    first = write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    copy = tmp_path / "copy.rltune"
    copy.write_bytes(first.read_bytes())
    registry = load_registry(place.environ(RLTUNE_BUNDLE_PATH=f"{copy}:{first}"))
    assert [bundle.path for bundle in registry.bundles] == [str(copy)]
    assert registry.clashes == ()


def test_disjoint_streams_combine(place, caplog):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    later = replace(CHOICE, ranges=((9, 16, SELECTED),))
    write_bundle(place.bundles / "b.rltune", place.key, [later, OTHER], stream=STREAMS[1])
    registry = load_registry(place.environ(RLTUNE_MODE="strict"))
    assert (len(registry.bundles), registry.clashes, caplog.records) == (2, (), [])


def test_overlap_of_two_streams_names_both_and_in_strict_mode_fails(place, caplog):
    first = write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    second = write_bundle(place.bundles / "b.rltune", place.key, [CHOICE], stream=STREAMS[1])
    registry = load_registry(place.environ())
    (clash,) = registry.clashes
    assert clash.bundles == (str(first), str(second))
    assert len(caplog.records) == 1
    with pytest.raises(OverlapError) as caught:
        load_registry(place.environ(RLTUNE_MODE="strict"))
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


@pytest.mark.parametrize("how", ["other driver", "other source"])
def test_no_overlap_where_no_place_fits_both(place, how):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    target, fingerprint = interpreter_target(), "0" * 64
    if how == "other driver":
        target = replace(target, drivers=(Driver(version="other", evidence="evidence"),))
        fingerprint = ""
    write_bundle(
        place.bundles / "b.rltune",
        place.key,
        [CHOICE],
        target=target,
        stream=STREAMS[1],
        fingerprint=fingerprint,
    )
    assert load_registry(place.environ()).clashes == ()


def test_500_configs_load_within_20_ms(place):
    """The budget of an import, libraries apart, in processor time.

    A busy machine is judged by a JSON round trip of the same payload, which
    takes above 3 ms on a free core.
    """
    choices = [
        Choice(
            kernel=kernel,
            key=ShapeKey.of(dtype, {"intermediate_size": 64 * width}),
            ranges=((1, 64, SELECTED),),
        )
        for kernel in (FORWARD, BACKWARD)
        for dtype in ("bf16", "fp16", "fp32")
        for width in range(1, 43)
    ]
    write_bundle(place.bundles / "a.rltune", place.key, choices)
    (bundle,) = load_registry(place.environ()).bundles
    assert 2 * sum(map(len, bundle.decisions.values())) == 504  # a baseline and a selection each
    pairs = [
        (
            cpu_time_s(lambda: load_registry(place.environ())),
            cpu_time_s(lambda: json.dumps(json.loads(bundle.file.payload), sort_keys=True)),
        )
        for _ in range(15)
    ]
    load_s = min(load for load, _ in pairs)
    round_trip_s = min(trip for _, trip in pairs)
    assert load_s <= max(0.020, 6 * round_trip_s)


def cpu_time_s(work) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin

"""A place with a key, a trust store and a folder of bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.runtime import search
from tests.unit.runtime.places import write_trust

STREAMS = ("rltune/test/main", "rltune/test/other")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a test's bundles and trust lie."""

    key: Ed25519PrivateKey
    bundles: Path
    trust: Path

    def environ(self, **others: str) -> dict[str, str]:
        """Variables that load this place."""
        return {
            "RLTUNE_BUNDLE_PATH": str(self.bundles),
            "RLTUNE_TRUST_DIR": str(self.trust),
            **others,
        }


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    monkeypatch.setattr(search, "SYSTEM_DIRECTORY", tmp_path / "no-system-directory")
    key = Ed25519PrivateKey.generate()
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    trust = write_trust(tmp_path / "trust", key, STREAMS)
    return Place(key=key, bundles=bundles, trust=trust)

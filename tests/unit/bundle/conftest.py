import pytest

from rltune.bundle.trust import load_trust_store
from tests.support.bundles import make_bundle


@pytest.fixture
def signed(tmp_path):
    """(bundle path, loaded trust store, key path) of a small valid bundle."""
    bundle_path, trust_dir, key_path = make_bundle(tmp_path)
    return bundle_path, load_trust_store(trust_dir), key_path

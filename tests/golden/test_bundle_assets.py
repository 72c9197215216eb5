"""Bundles of each released schema stay here for ever; wrong ones are named by their defect."""

import shutil

import pytest

from rltune.bundle.trust import load_trust_store
from rltune.bundle.verify import Refused, verify_bundle
from tests.golden.make_bundles import ASSETS, EXPECTED, make
from tests.support.bundles import NOW


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    # a checkout may be writable by a group, and a trust store must not
    folder = tmp_path_factory.mktemp("assets") / "trust"
    shutil.copytree(ASSETS / "trust", folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(path.stat().st_mode & ~0o022)
    return load_trust_store(folder)


@pytest.mark.parametrize("name", EXPECTED)
def test_verdict_of_an_asset(trust, name):
    verdict = verify_bundle(ASSETS / f"{name}.rltune", trust, NOW)
    status = verdict.exit_status if isinstance(verdict, Refused) else 0
    assert status == EXPECTED[name], verdict


def test_assets_are_what_the_generator_makes(tmp_path):
    make(tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")}
    kept = {path.relative_to(ASSETS): path.read_bytes() for path in ASSETS.rglob("*.*")}
    assert made == kept

"""Presets: what is accepted, and the sentence that refuses the rest."""

import pytest

from rltune.core.shapes import ShapeKey
from rltune.errors import PresetError
from rltune.sweep.plan import plan_parts
from rltune.sweep.preset import built_in_presets, load_preset, parse_preset
from rltune_kernels import OPERATORS, operator_specs

GOOD = """
format = "rltune-preset/1"
name = "one"
summary = "one case"
source = "this test"

[[qualification]]
operator = "silu"
dtypes = ["bf16"]
axes = { intermediate_size = 64 }
num_tokens = [1, 3]
seeds = [1]

[[measurement]]
operator = "silu"
label = "small"
dtypes = ["bf16"]
axes = { intermediate_size = 64 }
num_tokens = [8]
"""


def test_good_preset_parses():
    preset = parse_preset(GOOD, "one.toml")
    assert preset.qualification[0].num_tokens == [1, 3]
    assert preset.budget.processes >= 5


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (("num_tokens = [1, 3]", "num_tokens = [0]"), "qualification[0].num_tokens[0]"),
        (("num_tokens = [1, 3]", "num_tokens = []"), "qualification[0].num_tokens"),
        (('dtypes = ["bf16"]', 'dtypes = ["bf17"]'), "qualification[0].dtypes[0]"),
        (("seeds = [1]", 'seeds = ["1"]'), "qualification[0].seeds[0]"),
        (("seeds = [1]", 'seeds = [1]\ngenerators = ["ugly"]'), "'ugly'"),
        (('label = "small"', 'label = "tiny"'), "measurement[0].label"),
        (('name = "one"', 'name = "one"\nspeed = 3'), "speed: Extra inputs"),
        (("rltune-preset/1", "rltune-preset/2"), "format"),
        (("num_tokens = [8]", "num_tokens = [true]"), "measurement[0].num_tokens[0]"),
        (("[[qualification]]", "[[qualification]"), "not TOML"),
    ],
)
def test_bad_field_is_named(edit, sentence):
    with pytest.raises(PresetError) as caught:
        parse_preset(GOOD.replace(edit[0], edit[1], 1), "one.toml")
    assert "one.toml" in str(caught.value)
    assert sentence in str(caught.value)
    assert caught.value.exit_status == 2


def test_measurement_without_qualification_is_refused():
    text = GOOD.replace("[[measurement]]", "[[measurement]]#").replace(
        "intermediate_size = 64 }\nnum_tokens = [8]", "intermediate_size = 65 }\nnum_tokens = [8]"
    )
    with pytest.raises(PresetError, match=r"measurement\[0\]: silu bf16,intermediate_size=65"):
        parse_preset(text, "one.toml")


def test_digest_ignores_comments_and_not_values():
    plain = parse_preset(GOOD, "one.toml").digest()
    assert parse_preset("# a comment\n" + GOOD, "one.toml").digest() == plain
    assert parse_preset(GOOD.replace("[8]", "[9]"), "one.toml").digest() != plain


def test_built_in_presets_are_valid_and_named_by_their_file():
    presets = built_in_presets()
    assert set(presets) >= {"smoke", "qwen3-8b", "llama-3.1-8b"}
    for name in presets:
        assert load_preset(name).name == name


@pytest.mark.parametrize(
    ("name", "intermediate_size", "vocab_size"),
    [("qwen3-8b", 12288, 151936), ("llama-3.1-8b", 14336, 128256)],
)
def test_model_presets_hold_every_operator_at_one_to_four_ranks(
    name, intermediate_size, vocab_size
):
    """Of the published configs: 32 query and 8 key heads of 128, hidden size 4096."""
    specs = operator_specs()
    parts = [
        part
        for preset in (name, f"{name}-losses")
        for part in plan_parts(load_preset(preset), specs)
    ]
    keys = {(part.kernel.operator, part.key) for part in parts}
    assert {operator for operator, _ in keys} == set(OPERATORS)
    for ranks in (1, 2, 4):
        heads = {"num_heads": 32 // ranks, "num_key_heads": 8 // ranks}
        vocabulary = {"vocab_size": vocab_size // ranks, "hidden_size": 4096}
        mlp = {"intermediate_size": intermediate_size // ranks}
        assert keys >= {
            ("rope", ShapeKey.of("bf16", {**heads, "head_dim": 128, "rotary_dim": 128})),
            ("embedding", ShapeKey.of("bf16", vocabulary)),
            ("silu", ShapeKey.of("bf16", mlp)),
            ("swiglu", ShapeKey.of("bf16", mlp)),
        }
        if ranks > 1:
            columns = vocab_size // ranks
            shard = {"vocab_size": columns, "padded_vocab_size": columns, "num_shards": ranks}
            assert ("logprob", ShapeKey.of("bf16", shard)) in keys
    whole = {"vocab_size": vocab_size, "padded_vocab_size": vocab_size}
    for operator in ("logprob", "ratio_kl"):
        assert (operator, ShapeKey.of("bf16", whole)) in keys
    for operator in ("rms_norm", "add_rms_norm"):
        assert (operator, ShapeKey.of("bf16", {"hidden_size": 4096})) in keys


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(PresetError, match="smoke"):
        load_preset("no-such-preset")

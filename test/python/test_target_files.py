"""Target descriptions of the user's own: what is wrong in one is said by field."""

import json

import pytest

from kitsune_mlir import UserError
from kitsune_mlir.planning import target

GOOD = json.loads((target.FOLDER / "sm_90a.json").read_text())


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD | {"name": "mine", "sms": 7}))
    assert target.load(str(path)) == target.load("sm_90a").override(name="mine", sms=7)


@pytest.mark.parametrize("name", target.names())
def test_a_target_is_saved_as_it_is_loaded(name, tmp_path):
    mine = target.load(name).override(name="mine", sms=7)
    assert target.load(mine.save(tmp_path / "mine.json")) == mine


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "Expecting property name"),
        ("[1]", "it must hold one object"),
        ('{"name": "x"}', "the field 'kind' is missing"),
        (json.dumps(GOOD | {"nope": 1}), "there is no field 'nope'; the fields are name, kind"),
        (json.dumps(GOOD | {"sms": "many"}), "'sms' must be a whole number above 0, found 'many'"),
        (json.dumps(GOOD | {"sms": 1.5}), "'sms' must be a whole number above 0, found 1.5"),
        (json.dumps(GOOD | {"dram_gbps": -3}), "'dram_gbps' must be a number above 0, found -3"),
        (json.dumps(GOOD | {"kind": "tpu"}), "'kind' must be gpu or cpu, found 'tpu'"),
        (json.dumps(GOOD | {"tma": 1}), "'tma' must be a bool, found 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, sentence):
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        target.load(str(path))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)

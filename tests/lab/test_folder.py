"""A lab folder is read as it was written, and whatever is wrong with it is said in a sentence."""

import json
from dataclasses import replace

import pytest

from tilth.files import FileError
from tilth.lab.folder import Lab, Table, Trial, load_lab, save_lab, trial_folder

TRIAL = Trial("lr-1", "1", "lr 1", 1, "finished")
LAB = Lab(
    "lr",
    "Which is best?",
    None,
    ("tilth", "lab", "lr"),
    "learning rate",
    (TRIAL, replace(TRIAL, name="lr-2", x=None, state="planned")),
    (Table("Losses", ("lr", "loss"), ((1e-3, 2), ("none", None))),),
    ("It ran on two cores.",),
)


def test_round_trip(tmp_path):
    save_lab(tmp_path, LAB)
    assert load_lab(tmp_path) == LAB
    done = replace(LAB, answer="1 is.")
    save_lab(tmp_path, done)
    assert load_lab(tmp_path) == done
    assert trial_folder(tmp_path, TRIAL) == tmp_path / "runs" / "lr-1"


def test_a_manifest_that_others_can_read(tmp_path):
    save_lab(tmp_path, LAB)
    content = json.loads((tmp_path / "lab.json").read_text())
    assert content["format"] == "lab"
    assert content["version"] == 1
    assert content["trials"][0] == {
        **{"name": "lr-1", "label": "1", "group": "lr 1", "x": 1, "state": "finished"}
    }
    assert content["tables"][0]["rows"] == [[0.001, 2], ["none", None]]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lab: lab.pop("asks"), "no asks"),
        (lambda lab: lab.update(ask="?"), "did you mean asks"),
        (lambda lab: lab.update(asks=3), "asks must be a text"),
        (lambda lab: lab.update(answer=3), "answer must be a text"),
        (lambda lab: lab.update(command="tilth lab"), "command must be a list"),
        (lambda lab: lab.update(notes=[3]), "notes must be texts"),
        (lambda lab: lab.update(trials={}), "trials must be a list"),
        (lambda lab: lab.update(trials=["lr-1"]), "a trial must be an object"),
        (lambda lab: lab["trials"][0].pop("group"), "no group"),
        (lambda lab: lab["trials"][0].update(name="../lr"), "no name of a folder"),
        (lambda lab: lab["trials"][0].update(name=".."), "no name of a folder"),
        (lambda lab: lab["trials"][0].update(state="done"), "'done' of lr-1 is unknown"),
        (lambda lab: lab["trials"][0].update(x="1"), "x of the trial lr-1"),
        (lambda lab: lab["trials"][0].update(x=True), "x of the trial lr-1"),
        (lambda lab: lab["trials"][0].update(name="lr-2"), "lr-2 is there twice"),
        (lambda lab: lab["tables"][0]["rows"].append([1]), "has 2 columns"),
        (lambda lab: lab["tables"][0]["rows"].append([1, [2]]), "a text, a number or None"),
        (lambda lab: lab["tables"][0].update(columns=[1, 2]), "must be texts"),
        (lambda lab: lab.update(tables=[[]]), "a table must be an object"),
    ],
)
def test_damage(tmp_path, damage, said):
    save_lab(tmp_path, LAB)
    content = json.loads((tmp_path / "lab.json").read_text())
    damage(content)
    (tmp_path / "lab.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match=said):
        load_lab(tmp_path)


def test_no_lab(tmp_path):
    with pytest.raises(FileError, match="is no lab"):
        load_lab(tmp_path)


def test_numbers_are_finite():
    with pytest.raises(ValueError, match="finite"):
        replace(TRIAL, x=float("inf"))

"""Lab files round-trip, and invalid ones are refused in one sentence."""

import json
from dataclasses import replace

import pytest

from tests.report.reporting import config_of
from tilth.files import FileError
from tilth.report.lab_file import (
    Chart,
    Lab,
    Line,
    Table,
    Trial,
    check_folder,
    load_lab,
    new_lab,
    save_lab,
    trial_folder,
)

LINES = (Line("a", ((1, 2.5), (10, 0.5))), Line("b", ()))
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
    (Chart("Losses", "lr", "loss", LINES, "log", "linear", "Lower is better."),),
    config_of().to_dict(),
)


def test_round_trip(tmp_path):
    save_lab(tmp_path, LAB)
    assert load_lab(tmp_path) == LAB
    done = replace(LAB, answer="1 is.")
    save_lab(tmp_path, done)
    assert load_lab(tmp_path) == done
    assert trial_folder(tmp_path, TRIAL) == tmp_path / "runs" / "lr-1"


def test_lab_file_is_not_written_through_a_link(tmp_path):
    """An untrusted lab may link to a lab of the user."""
    (tmp_path / "mine.json").write_text("mine")
    (tmp_path / "lab.json").symlink_to("mine.json")
    with pytest.raises(FileError, match=r"lab\.json is a symbolic link"):
        save_lab(tmp_path, LAB)
    assert (tmp_path / "mine.json").read_text() == "mine"


def test_json_layout(tmp_path):
    save_lab(tmp_path, LAB)
    content = json.loads((tmp_path / "lab.json").read_text())
    assert content["format"] == "lab"
    assert content["version"] == 1
    assert content["trials"][0] == {
        **{"name": "lr-1", "label": "1", "group": "lr 1", "x": 1, "state": "finished"}
    }
    assert content["tables"][0]["rows"] == [[0.001, 2], ["none", None]]
    (chart,) = content["charts"]
    assert chart["lines"][0] == {"name": "a", "points": [[1, 2.5], [10, 0.5]]}
    assert (chart["x_scale"], chart["y_scale"]) == ("log", "linear")
    assert content["base"]["steps"] == 40


def test_file_without_charts(tmp_path):
    save_lab(tmp_path, LAB)
    content = json.loads((tmp_path / "lab.json").read_text())
    del content["charts"], content["base"]
    (tmp_path / "lab.json").write_text(json.dumps(content))
    assert load_lab(tmp_path) == replace(LAB, charts=(), base={})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lab: lab.pop("asks"), "key asks is missing"),
        (lambda lab: lab.update(ask="?"), "did you mean asks"),
        (lambda lab: lab.update(asks=3), "asks must be text"),
        (lambda lab: lab.update(answer=3), "answer must be text"),
        (lambda lab: lab.update(command="tilth lab"), "command must be a list"),
        (lambda lab: lab.update(notes=[3]), r"notes\[0\] must be text"),
        (lambda lab: lab.update(trials={}), "trials must be a list"),
        (lambda lab: lab.update(trials=["lr-1"]), r"trials\[0\] must be a table"),
        (lambda lab: lab["trials"][0].pop("group"), "key group is missing"),
        (lambda lab: lab["trials"][0].update(name="../lr"), "a path cannot leave the folder"),
        (lambda lab: lab["trials"][0].update(name=".."), "a path cannot leave the folder"),
        (lambda lab: lab["trials"][0].update(state="done"), "state 'done' is unknown"),
        (lambda lab: lab["trials"][0].update(x="1"), r"trials\[0\]\.x must be .*, not '1'"),
        (lambda lab: lab["trials"][0].update(x=True), r"trials\[0\]\.x must be .*, not True"),
        (lambda lab: lab["trials"][0].update(name="lr-2"), "name lr-2 occurs twice"),
        (lambda lab: lab["tables"][0]["rows"].append([1]), "has 2 columns"),
        (lambda lab: lab["tables"][0]["rows"].append([1, [2]]), r"rows\[2\]\[1\] must be text"),
        (lambda lab: lab["tables"][0].update(columns=[1, 2]), r"columns\[0\] must be text"),
        (lambda lab: lab.update(tables=[[]]), r"tables\[0\] must be a table"),
        (lambda lab: lab.update(charts={}), "charts must be a list"),
        (lambda lab: lab.update(charts=[3]), r"charts\[0\] must be a table"),
        (
            lambda lab: lab["charts"][0].pop("y_label"),
            r"key y_label is missing from the table charts\[0\]",
        ),
        (lambda lab: lab["charts"][0].update(text=None), "text must be text"),
        (lambda lab: lab["charts"][0].update(x_scale="logarithmic"), "choose one of linear, log"),
        (lambda lab: lab["charts"][0].update(lines=3), "lines must be a list"),
        (lambda lab: lab["charts"][0]["lines"].append("c"), r"lines\[2\] must be a table"),
        (lambda lab: lab["charts"][0]["lines"][0].update(colour="red"), "'colour' is not a key"),
        (lambda lab: lab["charts"][0]["lines"][0].update(name=3), "name must be text"),
        (
            lambda lab: lab["charts"][0]["lines"][0]["points"].append(3),
            r"points\[2\] must be a list",
        ),
        (
            lambda lab: lab["charts"][0]["lines"][0]["points"].append([1]),
            r"points\[2\] must have 2 items",
        ),
        (
            lambda lab: lab["charts"][0]["lines"][0]["points"].append([1, "2"]),
            r"points\[2\]\[1\] must be",
        ),
        (
            lambda lab: lab["charts"][0]["lines"][0]["points"].append([1, None]),
            r"points\[2\]\[1\] must be",
        ),
        (
            lambda lab: lab["charts"][0]["lines"][1]["points"].append([0, 1]),
            "has x = 0, which a log scale",
        ),
        (lambda lab: lab.update(base=[]), "base must be a table"),
        (lambda lab: lab["base"].update(step=3), "did you mean steps"),
        (lambda lab: lab["base"].update(steps=0), "steps must be at least 1"),
    ],
)
def test_damage(tmp_path, damage, said):
    save_lab(tmp_path, LAB)
    content = json.loads((tmp_path / "lab.json").read_text())
    damage(content)
    (tmp_path / "lab.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match=said):
        load_lab(tmp_path)


def test_missing_lab(tmp_path):
    with pytest.raises(FileError, match="is not a lab directory"):
        load_lab(tmp_path)


def test_new_lab_refuses_other_directories(tmp_path):
    assert new_lab(tmp_path / "new" / "lab", "lr").is_dir()
    (tmp_path / "new" / "lab" / "lock").touch()
    (tmp_path / "new" / "lab" / ".lab.json.partial").touch()
    new_lab(tmp_path / "new" / "lab", "lr")  # stopped before the first trial
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "report.md").write_text("theirs")
    with pytest.raises(
        FileExistsError, match="is not empty and not a lab directory; name another --out"
    ):
        new_lab(tmp_path / "theirs", "lr")
    with pytest.raises(FileExistsError, match="is a file"):
        new_lab(tmp_path / "theirs" / "report.md", "lr")
    save_lab(tmp_path / "theirs", LAB)  # now it is a lab, with its report
    new_lab(tmp_path / "theirs", "lr")
    with pytest.raises(ValueError, match="the lab of another question, lr"):
        new_lab(tmp_path / "theirs", "depth")


def test_directory_of_a_lab_with_parts(tmp_path):
    parts = ("depth", "context")
    (tmp_path / "depth").mkdir()
    check_folder(tmp_path, "shape", parts)
    (tmp_path / "report.md").touch()
    with pytest.raises(FileExistsError, match="not a lab directory"):
        check_folder(tmp_path, "shape", parts)
    save_lab(tmp_path / "depth", replace(LAB, name="depth"))
    check_folder(tmp_path, "shape", parts)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400, 1e308, True, "1", None])
def test_numbers_are_bounded(number):
    if number is not None:
        with pytest.raises(ValueError, match="x must be a whole number or a number, not"):
            replace(TRIAL, x=number)
    for point in ((1, number), (number, 1)):
        with pytest.raises(
            ValueError, match=r"points\[0\]\[.\] must be a whole number or a number"
        ):
            Line("a", (point,))


def test_log_scale_refuses_zero():
    chart = Chart("a", "x", "y", (Line("a", ((0.0, -1.0), (1.0, 2.0))),))
    assert replace(chart, lines=(), x_scale="log", y_scale="log").lines == ()
    with pytest.raises(ValueError, match=r"has x = 0\.0, which .* make x_scale linear"):
        replace(chart, x_scale="log")
    with pytest.raises(ValueError, match=r"has y = -1\.0, which .* make y_scale linear"):
        replace(chart, y_scale="log")

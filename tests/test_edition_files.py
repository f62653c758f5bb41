"""The comparison of two editions finds each changed value, and ignores the words of findings."""

import copy
import json

import pytest

from scripts.edition_files import WORKSPACE, differences

LAB = {
    "asks": "Which rate is best?",
    "answer": "Best is 0.016, with 1.5004 bits per byte. From 1.02 on training diverges.",
    "trials": [{"name": "lr-0.016", "label": "0.016", "state": "finished"}],
    "tables": [{"title": "Rates", "columns": ["rate", "ms a step"], "rows": [["0.016, -4%", 12]]}],
    "notes": ["Nothing diverged, up to 1,024."],
    "charts": [{"title": "Speed", "x_scale": "log", "lines": [{"points": [[1, 2.5]]}]}],
}
REWORDED = {
    **LAB,
    "asks": "Which learning rate is best?",
    "answer": "Training diverges at 1.02 and above; 0.016 is best: 1.5004 bits per byte.",
    "tables": [
        {"title": "All", "columns": ["lr", "ms per step"], "rows": [["-4% with 0.016", 99]]}
    ],
    "notes": ["No learning rate up to 1,024 diverged."],
}
ANSWER = "Best is 0.016, with 1.5004 bits per byte.\nWrote report.html\n"


@pytest.fixture
def compare(tmp_path):
    """Return the places that differ between the first edition and a lab with its stdout."""

    def places(lab, answer=ANSWER):
        folders = []
        for edition, found, said in (("old", LAB, ANSWER), ("new", lab, answer)):
            folder = tmp_path / edition / "lab-lr"
            folder.mkdir(parents=True)
            (tmp_path / edition / WORKSPACE).write_text("none")
            (folder / "lab.json").write_text(json.dumps(found))
            (folder / "stdout-0.txt").write_text(said)
            folders.append(folder)
        return [place for place, _ in differences(*folders)]

    return places


def test_other_words_are_equal(compare):
    assert compare(REWORDED, "0.016 is best: 1.5004 bits per byte.\nWrote a report\n") == []


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["answer"], "Training diverges at 1.02 and above; 0.016 is best: 1.5005 bits per byte."),
        (["answer"], "0.016 is best: 1.5004 bits per byte."),
        (["notes", 0], "No learning rate up to 1,025 diverged."),
        (["tables", 0, "rows", 0, 0], "4% with 0.016"),
        (["tables", 0, "rows", 0, 0], None),
        (["trials", 0, "state"], "diverged"),
        (["trials", 0, "label"], "lr 0.016"),
        (["charts", 0, "x_scale"], "linear"),
        (["charts", 0, "lines", 0, "points", 0, 1], 2.25),
    ],
)
def test_a_changed_value_is_found(compare, keys, value):
    changed = inner = copy.deepcopy(REWORDED)
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (place,) = {place.partition("[")[0] for place in compare(changed)}
    assert place == f"lab.json:{keys[0]}"


def test_a_changed_number_of_the_printed_answer_is_found(compare):
    places = compare(REWORDED, ANSWER.replace("1.5004", "1.5003"))
    assert places
    assert all(place.startswith("stdout-0.txt[0]") for place in places)

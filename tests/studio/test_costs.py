"""The page Cost: its numbers are those of `tilth account --json`, and each has its arithmetic."""

import inspect
import json
import math
import random
import shlex
from pathlib import Path

import pytest

import tilth
from tests.command_line import tilth as run_tilth
from tilth.accounting import account
from tilth.accounting.subjects import SHAPE_NAMES
from tilth.accounting.tracing import shown
from tilth.studio.cost_tables import explain, tables
from tilth.studio.costs import CostRequest, Costs
from tilth.studio.folder import Folder


def ask(client, path="cost", **body):
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def cells(found):
    return [cell for table in found["tables"] for row in table["rows"] for cell in row["cells"]]


def at(values, path):
    for name in path.split("."):
        values = values[int(name)] if isinstance(values, list) else values[name]
    return values


SETTINGS = {"batch_size": 12, "num_microbatches": 5, "steps": 1000, "hardware": "h100"}
SETTINGS |= {"dtype": "bfloat16", "optimizer": "muon", "mfu": 0.35, "hours": 24.0, "price": 2.5}
SETTINGS |= {"recompute": True, "memory": "24GiB"}


@pytest.mark.parametrize("subject", ["gpt2-xl", "llama-3-8b", "tinystories"])
def test_cells_are_numbers_of_account(client, subject):
    found = ask(client, subject=subject)
    values = account(subject).to_dict()
    paths = [cell["path"] for cell in cells(found) if cell["path"]]
    assert len(paths) > 60
    for cell in cells(found):
        if cell["path"] and isinstance(at(values, cell["path"]), int) and "(" not in cell["text"]:
            assert cell["text"].replace(",", "") == str(at(values, cell["path"])), cell


@pytest.mark.parametrize(
    "body",
    [
        {"subject": "gpt2-xl"},
        {"subject": "llama-3-8b", **SETTINGS, "shape": {"context_length": 512}},
        {
            "subject": "gpt2-small",
            "shape": {"d_model": 256, "tie_embeddings": True, "norm": "post"},
        },
    ],
)
def test_the_command_prints_the_same_numbers(client, body):
    found = ask(client, **body)
    done = run_tilth(*shlex.split(found["command"])[1:], "--json")
    values = json.loads(done.stdout)
    assert found["name"] == values["name"]
    for cell in cells(found)[::9]:
        if cell["path"]:
            explained = ask(client, "cost/number", **body, number=cell["path"])
            assert explained["value"] == shown(at(values, cell["path"])), cell["path"]


def evaluated(parts):
    text = "".join(part["value"] for part in parts).replace(",", "").replace("×", "*")
    text = text.replace("−", "-").replace("^", "**").replace("√", "math.sqrt").replace("≤", "<=")
    return eval(text, {"math": math})


def test_every_number_opens_into_its_arithmetic(folder):
    """The formula gives the number, and each line is one of the source, in the function named."""
    root = Path(tilth.__file__).parent.parent
    asked = CostRequest("gpt2-xl", **SETTINGS)
    account = Costs(Folder(folder)).account(asked, traced=True)
    found = {"tables": tables(account.to_dict())}
    explained = {
        cell["path"]: explain(cell["path"], account) for cell in cells(found) if cell["path"]
    }
    for path, found in explained.items():
        value = float(found["value"].replace(",", ""))
        if path.endswith("implementation.largest_batch"):
            assert evaluated(found["parts"]) is True
        else:
            assert evaluated(found["parts"]) == pytest.approx(value, rel=1e-5), found
        assert found["lines"] or found["is_given"] or value in (0, 1), path
        for line in found["lines"]:
            text = (root / line["file"]).read_text("utf-8").splitlines()[line["line"] - 1]
            assert text.strip() == line["text"]
            assert line["source"][line["line"] - line["first"]].strip() == line["text"]
            name = line["function"].rpartition(".")[2]
            assert f"def {name}(" in "".join(line["source"]), line
        for part in found["parts"]:  # a number that the formula names opens too
            if part["path"]:
                other = explained.get(part["path"]) or explain(part["path"], account)
                assert (part["value"], part["text"]) == (other["value"], other["label"])


def test_a_formula_in_words(client):
    def formula(number, **body):
        found = ask(client, "cost/number", subject="gpt2-xl", number=number, **body)
        return "".join(part["text"] for part in found["parts"])

    assert formula("parameters.embedding") == "vocab_size × d_model"
    assert formula("flops.products.6.flops") == "2 × context_length × d_model × d_ff × num_layers"
    assert formula("memory.implementation.gradients_bytes") == "4 × parameters"
    assert formula("memory.textbook.once_bytes") == "4 × (2 × 2 × parameters)"
    found = formula("cost.seconds", hardware="a100", dtype="bfloat16", mfu=0.4, steps=5)
    assert found == "FLOPs per run / (peak in bfloat16 × mfu)"


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"subject": "gpt2-xxl"}, 404, "did you mean gpt2-xl?"),
        ({"subject": "../../etc"}, 404, "there is no shape or run of this name"),
        ({"shape": {"num_heads": 7}}, 400, "is not a multiple of num_heads 7"),
        ({"shape": {"d_model": "wide"}}, 400, "d_model must be a whole number"),
        ({"shape": {"width": 3}}, 400, "'width' is not a key of a model"),
        ({"shape": {"batch_size": 3}}, 400, "is not a key of a model"),
        ({"shape": {"traced": True}}, 400, "is not a key of a model"),
        ({"batch_size": 0}, 400, "batch_size must be at least 1"),
        ({"batch_size": 10**400}, 400, "batch_size"),
        ({"batch_size": 2, "num_microbatches": 3}, 400, "a microbatch needs a sequence"),
        ({"hours": 3}, 400, "hours need hardware"),
        ({"hardware": "a1000"}, 400, "hardware 'a1000' is unknown; did you mean a100?"),
        ({"hardware": "v100", "dtype": "bfloat16"}, 400, "has no peak for bfloat16"),
        ({"memory": "much"}, 400, "is not a size"),
        ({"optimizer": "adam"}, 400, "optimizer"),
        ({"dtype": "int8"}, 400, "dtype"),
        ({"number": "name"}, 400, "is not a number"),
        ({"number": "parameters.none"}, 400, "there is no number"),
        ({"number": "x" * 300}, 400, "at most 200 characters"),
    ],
)
def test_impossible_requests_are_a_sentence(client, body, status, sentence):
    path = "/api/cost/number" if "number" in body else "/api/cost"
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    said = response.json()["error"]["message"]
    assert sentence in said
    assert "\n" not in said


def test_runs_of_the_folder(client, folder):
    found = ask(client, subject="plain")
    assert found["name"] == "plain"
    assert found["command"] == "tilth account plain"
    values = account(folder / "plain").to_dict()
    assert cells(found)[0]["text"] == f"{values['parameters']['embedding']:,}"
    assert {"id": "chatty", "group": "This folder"} in found["subjects"]
    assert str(folder) not in json.dumps(found)


def test_random_shapes_equal_account(folder):
    """The traced numbers of random shapes, optimizers and devices equal those of `account`."""
    chance = random.Random(0)
    costs = Costs(Folder(folder))
    refused = 0
    for _ in range(15):
        shape = {name: chance.choice(CHOICES[name]) for name in chance.sample(sorted(CHOICES), 4)}
        options = {name: SETTINGS[name] for name in chance.sample(sorted(SETTINGS), 4)}
        asked = CostRequest(subject=chance.choice(SHAPE_NAMES), shape=shape, **options)
        try:
            found = costs.account(asked, traced=True)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match=r"\.$"):
                costs.account(asked)
            continue
        assert json.dumps(found.to_dict()) == json.dumps(costs.account(asked).to_dict())
    assert 0 < refused < 15


CHOICES = {
    "context_length": [1, 77, 4096],
    "d_model": [64, 100, 768],
    "num_layers": [1, 13],
    "num_heads": [2, 4, 16],
    "num_kv_heads": [1, 2],
    "d_ff": [1, 1000],
    "ffn": ["silu", "swiglu"],
    "norm": ["pre", "post", "none"],
    "position": ["rope", "none"],
    "qk_norm": [True, False],
    "head_dim": [16, 30],
    "qkv_bias": [True],
}


def test_no_number_is_computed_in_the_browser():
    source = (Path(inspect.getfile(Costs)).parent / "static" / "cost.js").read_text("utf-8")
    assert "Math." not in source

"""lm-eval gives the same numbers through transformers and through tilth."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import tilth as package
from tests.command_line import tilth
from tilth.exporting.evaluation_harness import evaluate_tasks

CHOICE = """
task: local_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/choice.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
doc_to_choice: "{{{{choices}}}}"
metric_list:
  - {{metric: acc}}
  - {{metric: acc_norm}}
"""
ROLLING = """
task: local_perplexity
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/text.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - {{metric: word_perplexity}}
  - {{metric: bits_per_byte}}
"""
UNTIL = """
task: local_generation
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/choice.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "x"
generation_kwargs: {{until: ["."], max_gen_toks: 8, do_sample: false}}
metric_list:
  - {{metric: exact_match}}
"""

# lm-eval and its libraries raise warnings, and set up logging and signals: in its own process.
COMPARE = """
import json, sys
import lm_eval.evaluator, lm_eval.tasks
from lm_eval.tasks._yaml_loader import load_yaml
from tilth.exporting.evaluation_harness import harness_model
import tilth
folder, *files = sys.argv[1:]
def run(model, **options):
    found = lm_eval.evaluator.simple_evaluate(
        model=model, tasks=[load_yaml(f, resolve_func=True) for f in files], bootstrap_iters=100,
        task_manager=lm_eval.tasks.TaskManager(include_defaults=False), **options)
    samples = {task: [[s["filtered_resps"], s["doc_id"]] for s in each]
               for task, each in found["samples"].items()}
    return {"results": found["results"], "samples": samples}
theirs = run("hf", model_args=f"pretrained={folder},dtype=float32", device="cpu", batch_size=4)
ours = run(harness_model(tilth.load(folder)))
print("RESULT " + json.dumps([theirs, ours], default=str))
"""


# As lm-eval after 0.4.13 finds plugins: entry points of the group are placeholders in its registry.
PLUGIN = """
from importlib.metadata import entry_points
import lm_eval.models
from lm_eval.api.registry import model_registry
(point,) = entry_points(group="lm_eval.models", name="tilth")
model_registry.register(point.name, target=point)
from lm_eval.__main__ import cli_evaluate
cli_evaluate()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    chance = random.Random(0)
    words = ["the", "mouse", "ran", "home", "and", "Lily", "was", "happy", "a", "little", "kite"]

    def text(count):
        return " ".join(chance.choices(words, k=count))

    with (folder / "choice.jsonl").open("w") as file:
        for _ in range(24):
            choices = [f" {text(chance.randrange(1, 6))}." for _ in range(3)]
            row = {"question": text(5), "choices": choices, "answer": chance.randrange(3)}
            file.write(json.dumps(row) + "\n")
    with (folder / "text.jsonl").open("w") as file:
        for count in (3, 20, 150):  # the last is longer than the context
            file.write(json.dumps({"text": text(count)}) + "\n")
    names = {"choice.yaml": CHOICE, "rolling.yaml": ROLLING, "until.yaml": UNTIL}
    for name, content in names.items():
        (folder / name).write_text(content.format(folder=folder))
    return folder


def run_python(*words, home):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    environment |= {"HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )


@pytest.mark.slow  # importing lm-eval and its libraries takes 15 s
def test_numbers_equal_those_of_transformers(exported, files, tmp_path):
    paths = [files / name for name in ("choice.yaml", "rolling.yaml", "until.yaml")]
    done = run_python("-c", COMPARE, exported, *paths, home=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(each for each in done.stdout.splitlines() if each.startswith("RESULT "))
    theirs, ours = json.loads(line.removeprefix("RESULT "))
    for task, values in theirs["results"].items():
        for metric, value in values.items():
            if isinstance(value, float):
                assert ours["results"][task][metric] == pytest.approx(value, rel=1e-5), metric
    generated = "local_generation"
    assert theirs["samples"][generated] == ours["samples"][generated]
    for one, two in zip(
        theirs["samples"]["local_choice"], ours["samples"]["local_choice"], strict=True
    ):
        for (their_score, their_greedy), (score, greedy) in zip(one[0], two[0], strict=True):
            assert float(score) == pytest.approx(float(their_score), abs=1e-3)
            assert str(greedy) == str(their_greedy)


@pytest.mark.slow
def test_task_file_by_the_verb_and_by_lm_eval(run, files, tmp_path):
    words = ("evaluate", run, "--tasks", files / "choice.yaml", "cloze", "--limit", 5, "--json")
    done = run_python("-m", "tilth", *words, home=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout)["tasks"]
    assert [row["task"] for row in rows] == ["cloze", "local_choice", "local_choice"]
    assert rows[1]["items"] == 5
    assert rows[1]["chance"] == pytest.approx(1 / 3)
    assert rows[1]["low"] <= rows[1]["accuracy"] <= rows[1]["high"]
    words = ("--model", "tilth", "--model_args", f"path={run}", "--tasks", files / "choice.yaml")
    done = run_python("-m", "tilth.exporting.evaluation_harness", *words, home=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "local_choice" in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    done = run_python("-c", PLUGIN, *words, home=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("|")] == table
    bad = Path(tmp_path / "bad.yaml")
    bad.write_text("task: [")
    done = run_python("-m", "tilth", "evaluate", run, "--tasks", bad, home=tmp_path)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "lm-eval cannot run" in done.stderr.splitlines()[-1]


def test_built_in_tasks_by_the_verb(run, exported):
    done = tilth("evaluate", exported, "--tasks", "all", "--limit", 6, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["tasks"]
    assert [row["task"] for row in rows] == ["continuation", "agreement", "cloze"]
    assert rows == evaluate_tasks(package.load(run), ["all"], limit=6)
    assert rows == package.evaluate_tasks(exported, limit=6)
    assert package.evaluate_tasks(run, "cloze", limit=6) == rows[2:]
    with pytest.raises(ValueError, match="limit must be at least 1"):
        package.evaluate_tasks(run, "cloze", limit=0)
    done = tilth("evaluate", run, "--tasks", "cloze", "--limit", 6)
    assert "50.0%" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--tasks", "cloz"), "did you mean cloze?"),
        (("--tasks", "absent.yaml"), "absent.yaml does not exist"),
        (("--tasks", "all", "--limit", "0"), "--limit is 0"),
        (("--tasks", "all", "--max-tokens", "5"), "omit --data and --max-tokens"),
    ],
)
def test_mistakes(run, words, complaint):
    done = tilth("evaluate", run, *words)
    assert done.returncode == 2
    assert complaint in done.stderr

"""The page Runs: its numbers are those of `tilth.list_runs`, `Run.metrics` and `Run.samples`."""

import asyncio
import fcntl
import json
import shlex
import shutil
from dataclasses import asdict, replace

import pytest
from starlette.testclient import TestClient

import tilth
from tests.studio.conftest import HOST, LAB
from tests.studio.test_run_logs import evaluation, line
from tilth.accounting import account
from tilth.report.lab_file import Lab, save_lab
from tilth.runs.run import open_run
from tilth.schema import read
from tilth.studio import folder as folder_module
from tilth.studio import make_app, run_table, runs
from tilth.studio.folder import Folder
from tilth.studio.models import Models
from tilth.studio.run_table import RunTable
from tilth.studio.runs import Runs, Watch


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(folder_module, "SECONDS", 0.0)
    monkeypatch.setattr(run_table, "SECONDS", 0.0)
    monkeypatch.setattr(runs, "SECONDS", 0.0)


@pytest.fixture
def studied(folder, tmp_path):
    """A folder with a run of 300 steps, one without steps, and a damaged one."""
    for name in ("long", "new", "damaged"):
        shutil.copytree(folder / "plain", tmp_path / name)
    shutil.rmtree(tmp_path / "new/checkpoints")
    (tmp_path / "new/checkpoints").mkdir()
    for name, begin in (("config.toml", "seed = 0"), ("config.toml", "steps = 5")):
        path = tmp_path / "new" / name
        assert begin in path.read_text()
        path.write_text(path.read_text().replace(begin, begin.replace("0", "7").replace("5", "9")))
    (tmp_path / "damaged/config.toml").write_text("steps = ")
    with (tmp_path / "long/metrics.jsonl").open("w") as file:
        for step in range(1, 301):
            values = {"evaluation": evaluation(step)} if step % 100 == 0 else {}
            if step == 300:
                values["loss"] = None
            if step % 50 == 0:
                layers = {f"layers.{i}": float(i + step) for i in range(3)}
                values["norms"] = {"activations": {"token_embeddings": 1.0, **layers}}
            file.write(line(step, **values))
    sample = {"prompt": "the", "text": " <script>alert(1)</script>"}
    (tmp_path / "long/samples.jsonl").write_text(json.dumps({"step": 5, **sample}) + "\n")
    return tmp_path


@pytest.fixture
def app(studied):
    shown = Folder(studied)
    app = make_app(Models(shown.models, tilth.load), folder=shown)
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as client:
        yield client


def test_table_equals_list_runs(app, studied):
    found = app.get("/api/runs").json()
    rows = {row["id"]: row for row in found["rows"]}
    assert found["ids"] == sorted(rows) == ["damaged", "long", "new"]
    for summary in tilth.list_runs(studied):
        row = rows[summary.name]
        names = ["state"]
        if summary.problem is None:
            names += ["step", "steps", "loss", "valid_loss", "bits_per_byte", "tokens_per_second"]
        assert {name: row[name] for name in names} == {
            name: getattr(summary, name) for name in names
        }
    last = open_run(studied / "long").metrics()[-1]
    assert (rows["long"]["tokens"], rows["long"]["seconds"]) == (last.tokens, last.seconds)
    model = open_run(studied / "long").config.model
    counted = account(model)
    assert rows["long"]["parameters"] == counted.parameters.total
    assert rows["long"]["flops"] == last.tokens * 3 * counted.forward_flops / model.context_length
    assert rows["new"]["loss"] is None
    assert "config.toml" in rows["damaged"]["problem"]
    assert str(studied) not in json.dumps(found)


def test_table_says_what_changed(studied):
    (studied / "new/metrics.jsonl").write_text("{}\n")
    table = RunTable(Folder(studied))
    first = table.read()
    since = first["time"]
    states = {row["id"]: row["state"] for row in first["rows"]}
    assert states == {"damaged": "damaged", "long": "finished", "new": "damaged"}
    assert table.read(since)["rows"] == []
    with (studied / "long/metrics.jsonl").open("a") as file:
        file.write(line(301))
    (row,) = table.read(since)["rows"]
    assert (row["id"], row["step"], row["state"]) == ("long", 301, "finished")
    with (studied / "long/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (row,) = [each for each in table.read(since)["rows"] if each["id"] == "long"]
        assert row["state"] == "running"
    (studied / "new").rename(studied / ".away")
    assert table.read(since)["ids"] == ["damaged", "long"]


def test_many_runs_come_in_parts(studied, monkeypatch):
    monkeypatch.setattr(run_table, "FIRST_SECONDS", -1.0)
    table = RunTable(Folder(studied))
    first = table.read()
    assert (first["rows"], first["is_complete"]) == ([], False)
    assert first["ids"] == ["damaged", "long", "new"]
    monkeypatch.setattr(run_table, "FIRST_SECONDS", 9.0)
    assert len(table.read(first["time"])["rows"]) == 3


def test_the_end_of_a_long_log_has_the_last_evaluation(studied, monkeypatch):
    monkeypatch.setattr(run_table, "END_BYTES", 500)
    row = next(r for r in RunTable(Folder(studied)).read()["rows"] if r["id"] == "long")
    assert row["valid_loss"] == evaluation(300)["loss"]
    assert row["loss"] == 9 / 300
    monkeypatch.setattr(run_table, "MAX_END_BYTES", 500)
    with (studied / "long/metrics.jsonl").open("a") as file:
        file.write("".join(line(step) for step in range(301, 320)))
    row = next(r for r in RunTable(Folder(studied)).read()["rows"] if r["id"] == "long")
    assert (row["step"], row["valid_loss"]) == (319, None)


def events(shown, asked, number):
    """The first events of a stream."""

    async def collect():
        found = []
        async for event in shown._events(asked):
            found.append(json.loads(event.removeprefix(b"data: ")))
            if len(found) == number:
                return found
        return found

    return asyncio.run(collect())


def test_watched_curves_equal_the_records(studied):
    shown = Runs(Folder(studied), lambda: False)
    found, table = events(shown, Watch(["long"]), 2)
    run = open_run(studied / "long")
    records = run.metrics()
    assert found["curve"] == {"x": [r.step for r in records], "y": [r.loss for r in records]}
    evaluated = [record for record in records if record.evaluation]
    assert found["valid"]["x"] == [record.step for record in evaluated]
    assert found["valid"]["y"] == [record.evaluation.loss for record in evaluated]
    assert found["samples"] == [asdict(sample) for sample in run.samples()]
    assert (found["run"], found["norms"], found["problem"]) == ("long", 6, None)
    assert len(table["table"]["rows"]) == 3
    for metric in ("lr", "grad_norm", "tokens_per_second", "utilisation"):
        found = events(shown, Watch(["long"], metric=metric), 1)[0]
        assert found["curve"]["y"] == [getattr(record, metric) for record in records]
    for axis in ("tokens", "seconds"):
        found = events(shown, Watch(["long"], axis=axis), 1)[0]
        assert found["curve"]["x"] == [getattr(record, axis) for record in records]
    found = events(shown, Watch(["long"], axis="flops", smoothing=10), 1)[0]
    row = next(row for row in shown.table.read()["rows"] if row["id"] == "long")
    assert found["curve"]["x"][-1] == row["flops"]
    mean = sum(record.loss for record in records[90:100]) / 10
    assert found["curve"]["y"][99] == pytest.approx(mean)
    assert max(found["curve"]["high"]) == records[0].loss


def test_only_news_are_sent(studied):
    shown, seen = Runs(Folder(studied), lambda: False), {}
    assert "curve" in shown.updates(Watch(["long"]), "long", seen)
    assert shown.updates(Watch(["long"]), "long", seen) is None
    with (studied / "long/metrics.jsonl").open("a") as file:
        file.write(line(301) + '{"step": 30')
    new = shown.updates(Watch(["long"]), "long", seen)
    assert new["curve"]["x"][-1] == 301
    assert "samples" not in new
    assert shown.updates(Watch(["long"]), "long", seen) is None
    (studied / "long").rename(studied / ".gone")
    assert "is not there" in shown.updates(Watch(["long"]), "long", seen)["problem"]
    assert shown.updates(Watch(["long"]), "long", seen) is None


def test_samples_are_read_while_no_thread_adds_any(studied):
    shown = Runs(Folder(studied), lambda: False)
    _, samples = shown.logs("long")
    samples.update()

    class Watched(list):
        def __iter__(self):
            assert samples.lock.locked()
            return super().__iter__()

    samples.samples = Watched(samples.samples)
    assert len(shown.updates(Watch(["long"]), "long", {})["samples"]) == 1


def test_streams_end_with_the_server_and_are_limited(studied, monkeypatch):
    assert events(Runs(Folder(studied), lambda: True), Watch(["long"]), 99) == []
    monkeypatch.setattr(runs, "MAX_WATCHES", 0)
    shown = Folder(studied)
    app = make_app(Models(shown.models, tilth.load), folder=shown)
    with TestClient(app, base_url=HOST) as client:
        assert client.post("/api/runs/watch", json={"runs": ["long"]}).status_code == 503


def test_columns_nobody_watches_are_released(studied, monkeypatch):
    monkeypatch.setattr(runs, "MAX_CACHED_BYTES", 1000)
    shown = Runs(Folder(studied), lambda: False)
    events(shown, Watch(["long"]), 2)
    events(shown, Watch(["new"]), 3)
    assert list(shown._logs) == ["new"]


def test_comparison(app, studied):
    found = app.post("/api/runs/compare", json={"runs": ["long", "new"]}).json()
    assert {"name": "seed", "values": ["0", "7"]} in found["differences"]
    assert {"name": "steps", "values": ["5", "9"]} in found["differences"]
    assert len(found["differences"]) == 2
    words = shlex.split(found["commands"][0])
    assert words[:3] == ["tilth", "train", "--config"]
    assert (
        open_run(studied / "long").config == open_run(words[3].removesuffix("/config.toml")).config
    )
    names = [name for name, _ in found["configs"][0]]
    assert "model.d_model" in names


def test_labs(app, studied):
    (studied / "labs/lr").mkdir(parents=True)
    save_lab(studied / "labs/lr", LAB)
    found = app.post("/api/lab", json={"lab": "labs/lr"}).json()
    assert shlex.split(found.pop("command")) == list(LAB.command)
    assert found.pop("id") == "labs/lr"
    assert read(Lab, found, "the response") == replace(LAB, command=())
    for name in ("lr", "long", "../labs/lr"):
        assert app.post("/api/lab", json={"lab": name}).status_code == 404
    (studied / "labs/lr/lab.json").write_text("{}")
    response = app.post("/api/lab", json={"lab": "labs/lr"})
    assert response.status_code == 400
    assert "labs/lr: lab.json" in response.json()["error"]["message"]
    assert str(studied) not in response.text


def test_norms_by_layer(app):
    found = app.post("/api/runs/norms", json={"run": "long"}).json()
    assert found["kinds"] == ["activations"]
    assert found["parts"] == ["token_embeddings", "layer"]
    assert (found["part"], found["steps"]) == ("layer", [50, 100, 150, 200, 250, 300])
    assert [row["layer"] for row in found["lines"]] == [0, 1, 2]
    assert found["lines"][2]["values"] == [2.0 + step for step in found["steps"]]
    asked = {"run": "long", "part": "token_embeddings"}
    (row,) = app.post("/api/runs/norms", json=asked).json()["lines"]
    assert (row["layer"], row["values"]) == (None, [1.0] * 6)
    asked = {"run": "long", "kind": "weights"}  # a link to norms that this run does not have
    assert app.post("/api/runs/norms", json=asked).json() == found
    assert app.post("/api/runs/norms", json={"run": "new"}).json()["lines"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("watch", {"runs": ["a"] * 21}, 400, "at most 20"),
        ("watch", {"metric": "x"}, 400, "metric"),
        ("watch", {"axis": "time"}, 400, "axis"),
        ("watch", {"window": {"points": 10**9}}, 400, "points"),
        ("watch", {"smoothing": 0}, 400, "smoothing"),
        ("watch", {"window": {"begin": "1"}}, 400, "begin"),
        ("compare", {"runs": ["other"]}, 404, "no run of this name"),
        ("compare", {"runs": ["../secret"]}, 404, "no run of this name"),
        ("compare", {"runs": ["damaged"]}, 400, "damaged: config.toml"),
        ("norms", {"run": "other"}, 404, "no run of this name"),
    ],
)
def test_invalid_requests(app, studied, path, body, status, sentence):
    response = app.post(f"/api/runs/{path}", json=body)
    assert response.status_code == status, response.text
    assert sentence in response.json()["error"]["message"]
    assert str(studied) not in response.text

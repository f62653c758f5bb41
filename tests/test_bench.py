"""The benchmark harness: interleaved rounds, statistics, and refusal of different answers.

Speed is not tested: the fake contenders sleep, crash, allocate or return wrong answers.
"""

import ast
import asyncio
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers

import tilth

PROJECT = Path(__file__).resolve().parent.parent

FAKE = '''"""Speed of doing nothing.

Target: none.
"""
import os, signal, subprocess, sys, time
from pathlib import Path
from bench.declaration import Benchmark, Contender, Limit, Skipped, Target

HERE = Path(__file__).parent

def prepare(folder):
    (folder / "text.txt").write_text("x" * 100_000)
    return {"plain": folder / "text.txt"}

def setup(file, sample):
    return file.read_bytes()[: int(file.stat().st_size * sample)]

def logged(name, seconds):
    def run(data):
        with (HERE / "order.log").open("a") as log:
            log.write(name + "\\n")
        time.sleep(seconds * len(data) / 100_000)
        return data
    return run

def same(data):
    return data
'''


def command(folder, *arguments):
    return [sys.executable, "-m", "bench", "--folder", str(folder), *arguments]


def bench(folder, declaration, *arguments):
    (folder / "fake.py").write_text(FAKE + declaration)
    ended = subprocess.run(
        command(folder, *arguments),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    result = folder / "results" / "fake.json"
    report = json.loads(result.read_text()) if result.exists() else None
    return ended, report


def rows(report):
    return {row["name"]: row for row in report["workloads"][0]["contenders"]}


@pytest.fixture(scope="module")
def finished_benchmark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    ended, report = bench(
        folder,
        """
BENCHMARK = Benchmark(
    prepare=prepare, threads=3, environment={"FAKE": "yes"}, unit="kB", work=lambda file: 100.0,
    contenders=[
        Contender("ours", setup, logged("ours", 0.02), len, package="pytest"),
        Contender("slow", setup, logged("slow", 0.08), len, package="pluggy", against="ours"),
        Contender("part", setup, logged("part", 0.16), len, against="ours", sample=0.25),
    ],
    targets=[
        Target("slow", at_least=1.1), Target("part", at_least=1000.0),
        Target("slow", at_least=0.5, measure="peak_bytes", workload="plain"),
        Target("slow", at_least=2.0, workload="elsewhere"),
        Target("slow", at_least=1000.0, otherwise=("part", 1.1)),
        Target("slow", at_least=1000.0, otherwise=("part", 1000.0)),
    ],
)
""",
        "--runs",
        "3",
    )
    return folder, ended, report


def test_contenders_alternate_and_each_round_starts_with_the_next(finished_benchmark):
    folder, ended, report = finished_benchmark
    assert ended.returncode == 0, ended.stderr
    order = (folder / "order.log").read_text().split()
    # The last line is ours on the sample of a peer.
    rounds = [order[start : start + 3] for start in range(0, len(order), 3)]
    assert rounds == [
        ["ours", "slow", "part"],
        ["slow", "part", "ours"],
        ["part", "ours", "slow"],
        ["ours"],
    ]
    runs = [(run["position"], name) for name, row in rows(report).items() for run in row["runs"]]
    assert [name for _, name in sorted(runs)] == order[:-1]


def test_medians_ratios_and_rates_match_the_runs(finished_benchmark):
    report = finished_benchmark[2]
    found = rows(report)
    medians = {}
    for name, row in found.items():
        assert [run["round"] for run in row["runs"]] == [1, 2, 3]
        times = [run["wall_seconds"] for run in row["runs"]]
        medians[name] = statistics.median(times)
        assert row["medians"]["wall_seconds"] == medians[name]
        assert row["spread_seconds"] == [min(times), max(times)]
        for measure in ("cpu_seconds", "peak_bytes"):
            values = [run[measure] for run in row["runs"]]
            assert row["medians"][measure] == statistics.median(values)
    assert min(run["wall_seconds"] for run in found["slow"]["runs"]) >= 0.08
    ratio = found["slow"]["ratios"]["wall_seconds"]
    assert ratio == pytest.approx(medians["slow"] / medians["ours"])
    assert ratio > 1
    assert found["slow"]["work_per_second"] == pytest.approx(100 / medians["slow"])
    assert found["ours"]["ratios"]["wall_seconds"] is None


def test_another_contender_may_meet_a_target(finished_benchmark):
    _, ended, report = finished_benchmark
    met, missed = report["workloads"][0]["targets"][-2:]
    assert (met["met"], missed["met"]) == (True, False)
    part = rows(report)["part"]["ratios"]["wall_seconds"]
    assert met["otherwise"] == {"peer": "part", "at_least": 1.1, "ratio": part}
    assert f"or part 1.1 times: met ({met['ratio']:.2f}; {part:.2f})" in ended.stdout
    assert "or part 1000 times: MISSED by" in ended.stdout


def test_sample_is_scaled_to_the_whole(finished_benchmark):
    _, ended, report = finished_benchmark
    found = rows(report)
    assert {run["answer"] for run in found["part"]["runs"]} == {25_000}
    part, ours = (found[name]["medians"]["wall_seconds"] for name in ("part", "ours"))
    assert found["part"]["ratios"]["wall_seconds"] == pytest.approx(part / 0.25 / ours)
    assert found["part"]["ratios"]["peak_bytes"] is None
    assert found["part"]["work_per_second"] == pytest.approx(25 / part)
    assert "on 0.25 of the workload" in ended.stdout


def test_report_is_complete(finished_benchmark):
    folder, _, report = finished_benchmark
    assert report["benchmark"] == "fake"
    assert report["question"].startswith("Speed of doing nothing.")
    assert report["command"] == "python -m bench --only fake --runs 3"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", report["date"])
    assert report["machine"]["cores"] == os.cpu_count()
    assert report["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert report["machine"]["cpu"]
    assert (report["threads"], report["environment"]) == (3, {"FAKE": "yes"})
    assert report["workloads"][0]["sha256"] == hashlib.sha256(b"x" * 100_000).hexdigest()
    assert rows(report)["ours"]["version"] == pytest.__version__
    assert not list(folder.glob("results/*partial"))


def test_table_is_complete_when_piped_and_names_the_file_last(finished_benchmark):
    folder, ended, _ = finished_benchmark
    lines = ended.stdout.splitlines()
    header = next(line for line in lines if line.startswith("contender"))
    slow = next(line for line in lines if line.startswith("slow"))
    assert "kB/s" in header
    assert " x ours" in slow[header.index("ratio") :]
    assert lines[-1] == f"wrote {folder / 'results' / 'fake.json'}"
    # Progress is a line for each run, and none of it is in the table's stream.
    assert len(re.findall(r"round \d of 3, \w+: [\d.]+ .?s\n", ended.stderr)) == 9
    assert "round" not in ended.stdout


def test_missed_target_is_not_an_error(finished_benchmark):
    _, ended, report = finished_benchmark
    met, missed, memory = report["workloads"][0]["targets"][:3]  # the fourth is for another
    assert (met["met"], missed["met"], memory["met"]) == (True, False, True)
    short = 1 - missed["ratio"] / 1000
    assert f"MISSED by {short:.1%} ({missed['ratio']:.2f})" in ended.stdout
    assert f"met ({met['ratio']:.2f})" in ended.stdout
    assert ended.returncode == 0


def test_different_answers_are_not_compared(tmp_path):
    ended, report = bench(
        tmp_path,
        """
BENCHMARK = Benchmark(prepare=prepare, targets=[Target("liar", at_least=1.0)], contenders=[
    Contender("ours", setup, same, len),
    Contender("liar", setup, same, lambda data: len(data) + 1, against="ours"),
    Contender("fickle", setup, same, lambda data: time.perf_counter_ns()),
])
""",
        "--runs",
        "2",
    )
    assert ended.returncode == 1
    found = rows(report)
    assert found["liar"]["failure"] == "answers differ: ours 100000, liar 100001"
    assert found["liar"]["failure"] in ended.stdout
    assert "medians" not in found["liar"]
    assert found["fickle"]["failure"].startswith("answers differ between runs")
    assert found["ours"]["medians"]
    assert "not judged" in ended.stdout


def test_a_target_against_the_best_of_several_peers(tmp_path):
    ended, report = bench(
        tmp_path,
        """
BENCHMARK = Benchmark(prepare=prepare, contenders=[
    Contender("ours", setup, logged("ours", 0.05), len, note="input: bytes"),
    Contender("slow", setup, logged("slow", 0.2), len, against="ours"),
    Contender("fast", setup, logged("fast", 0.1), len, against="ours"),
    Contender("liar", setup, same, lambda data: 1, against="ours"),
], targets=[
    Target(("slow", "fast", "liar"), at_least=1.1), Target(("slow", "fast"), at_least=1000.0),
    Target(("liar", "liar"), at_least=1.0),
])
""",
        "--runs",
        "1",
    )
    assert ended.returncode == 1  # the liar
    found = rows(report)
    met, missed, unknown = report["workloads"][0]["targets"]
    assert (met["best"], missed["best"], unknown["best"]) == ("fast", "fast", None)
    assert met["ratio"] == found["fast"]["ratios"]["wall_seconds"]
    assert (met["met"], missed["met"], unknown["met"]) == (True, False, None)
    start = "target: the best of slow, fast, liar takes at least 1.1 times the time of ours: "
    assert start + f"met ({met['ratio']:.2f}, fast)\n" in ended.stdout
    assert "not judged" in ended.stdout
    assert "input: bytes" in ended.stdout


def test_memory_limits(tmp_path):
    ended, report = bench(
        tmp_path,
        """
MB = 1_000_000

def large_setup(file, sample):
    freed = b"x" * (300 * MB)  # a peak of the setup, which is not growth
    return b"a" * (50 * MB)

def grow(data):
    temporary = b"b" * (100 * MB)
    return b"c" * len(temporary)

BENCHMARK = Benchmark(prepare=prepare, contenders=[
    Contender("grows", large_setup, grow, len, result_bytes=len),
    Contender("plain", setup, same, len),
], targets=[
    Limit("grows", 130 * MB, "growth_bytes"), Limit("grows", 70 * MB, "growth_bytes"),
    Limit("plain", 200 * MB), Limit("grows", 200 * MB),
])
""",
        "--runs",
        "1",
    )
    assert ended.returncode == 0, ended.stdout
    growth = rows(report)["grows"]["medians"]["growth_bytes"]
    assert growth == pytest.approx(100e6, rel=0.1)  # not the argument, not the result
    assert rows(report)["grows"]["medians"]["peak_bytes"] > 300e6  # the setup
    targets = report["workloads"][0]["targets"]
    assert [target["met"] for target in targets] == [True, False, True, False]
    shown = f"{growth / 1e6:,.0f} MB"
    assert f"{shown} beyond the argument and the result" in ended.stdout
    line = "target: grows takes at most 70 MB beyond its argument and result: MISSED"
    assert f"{line} ({shown})" in ended.stdout
    assert "target: plain takes at most 200 MB: met (" in ended.stdout


def test_skipped_workloads_say_why_and_are_not_errors(tmp_path):
    ended, report = bench(
        tmp_path,
        """
def some(folder):
    return {"absent": Skipped("no network"), **prepare(folder)}

BENCHMARK = Benchmark(prepare=some, contenders=[Contender("ours", setup, same, len)])
""",
        "--runs",
        "1",
    )
    assert ended.returncode == 0, ended.stderr
    assert "workload: absent: skipped: no network\n" in ended.stdout
    skipped, plain = report["workloads"]
    assert skipped == {"name": "absent", "skipped": "no network", "contenders": [], "targets": []}
    assert plain["contenders"][0]["runs"]


def test_failures_are_rows_and_the_others_still_run(tmp_path):
    ended, report = bench(
        tmp_path,
        """
def fail(data):
    raise RuntimeError("the peer is [ill]")

BENCHMARK = Benchmark(prepare=prepare, timeout_seconds=4.0, contenders=[
    Contender("ours", setup, same, len),
    Contender("crash", setup, fail, len, against="ours"),
    Contender("signal", setup, lambda data: os.kill(os.getpid(), signal.SIGSEGV), len),
    Contender("absent", setup, same, len, package="no-such-package", against="ours"),
    Contender("unimportable", lambda file, sample: __import__("no_such_module"), same, len),
    Contender("silent", setup, lambda data: os._exit(0), len),
    Contender("endless", setup, lambda data: time.sleep(60), len, against="ours"),
    Contender("honest", setup, same, len, against="ours"),
    Contender("other", setup, same, repr, against="ours", incomparable="not comparable"),
])
""",
        "--runs",
        "1",
    )
    assert ended.returncode == 1
    found = rows(report)
    assert {name: row["failure"] for name, row in found.items()} == {
        "ours": "",
        "crash": "exit code 1: RuntimeError: the peer is [ill]",
        "signal": "ended by SIGSEGV",
        "absent": "the package no-such-package is not installed",
        "unimportable": "exit code 1: ModuleNotFoundError: No module named 'no_such_module'",
        "silent": "ended without a result",
        "endless": "no result after 4 seconds",
        "honest": "",
        "other": "",
    }
    for row in found.values():
        assert row["failure"] in ended.stdout
    assert len(found["honest"]["runs"]) == 1
    assert found["honest"]["ratios"]["wall_seconds"] > 0
    assert found["other"]["ratios"]["wall_seconds"] > 0
    assert "answer not compared: not comparable\n" in ended.stdout


def test_memory_time_and_environment_belong_to_the_run(tmp_path):
    """The harness holds 120 MB here; on Linux, ru_maxrss would report that for every child."""
    ended, report = bench(
        tmp_path,
        """
KEPT = []

def prepare(folder):
    KEPT.append(b"x" * 120_000_000)
    (folder / "text.txt").write_text("x")
    return {"plain": folder / "text.txt"}

def busy_setup(file, sample):
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

BURN = "import time\\nwhile time.process_time() < 0.2: pass"
count = []
variables = ["OMP_NUM_THREADS", "RAYON_NUM_THREADS", "FAKE"]

BENCHMARK = Benchmark(prepare=prepare, threads=3, environment={"FAKE": "yes"}, contenders=[
    Contender("small", setup, same, len),
    Contender("large", setup, lambda data: b"y" * 200_000_000, len),
    Contender("idle", busy_setup, lambda nothing: None, str),
    Contender("child", setup, lambda data: subprocess.run([sys.executable, "-c", BURN]), str),
    Contender("warm", setup, lambda data: count.append(1) or len(count), int, warmup=2),
    Contender("told", setup, lambda data: [os.environ[name] for name in variables], list),
])
""",
        "--runs",
        "1",
    )
    assert ended.returncode == 0, ended.stdout
    runs = {name: row["runs"][0] for name, row in rows(report).items()}
    assert runs["large"]["peak_bytes"] >= 200_000_000
    assert runs["large"]["peak_bytes_before_run"] < 100_000_000
    assert runs["small"]["peak_bytes"] < 100_000_000
    assert runs["idle"]["cpu_seconds"] < 0.1
    assert runs["child"]["cpu_seconds"] >= 0.15
    assert runs["warm"]["answer"] == 3
    assert runs["told"]["answer"] == ["3", "3", "yes"]


def test_fresh_measures_from_the_start_of_the_process(tmp_path):
    ended, report = bench(
        tmp_path,
        """
BENCHMARK = Benchmark(prepare=prepare, fresh=True, contenders=[
    Contender("ours", lambda file, sample: time.sleep(0.3), lambda nothing: 1, int),
])
""",
        "--runs",
        "1",
        "--json",
        str(tmp_path / "elsewhere.json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert report is None
    run = rows(json.loads((tmp_path / "elsewhere.json").read_text()))["ours"]["runs"][0]
    assert run["wall_seconds"] > 0.3
    assert run["cpu_seconds"] > 0.01  # starting the interpreter


def test_unknown_name_gets_a_suggestion(tmp_path):
    ended, _ = bench(tmp_path, "BENCHMARK = None", "--only", "fkae")
    assert ended.returncode == 2
    assert ended.stderr == "There is no benchmark fkae; did you mean fake?\n"
    assert ended.stdout == ""


def test_broken_benchmark_does_not_stop_the_next(tmp_path):
    (tmp_path / "early.py").write_text('BENCHMARK = None\nraise ValueError("half written")\n')
    ended, report = bench(
        tmp_path,
        "BENCHMARK = Benchmark(prepare=prepare, contenders=[Contender('a', setup, same, len)])",
        "--runs",
        "1",
    )
    assert ended.returncode == 1
    assert "early did not run" in ended.stderr
    assert rows(report)["a"]["runs"]


def test_interrupt_ends_the_children(tmp_path):
    (tmp_path / "fake.py").write_text(
        FAKE
        + """
def wait(data):
    (HERE / "pid.partial").write_text(str(os.getpid()))
    (HERE / "pid.partial").rename(HERE / "pid")
    time.sleep(60)

BENCHMARK = Benchmark(prepare=prepare, contenders=[Contender("ours", setup, wait, len)])
"""
    )
    # SIGINT is ignored if the tests run in the background.
    start = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('bench', run_name='__main__')"
    )
    arguments = [sys.executable, "-c", start, "--folder", str(tmp_path)]
    with subprocess.Popen(arguments, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as process:
        limit = time.monotonic() + 20
        while not (tmp_path / "pid").exists() and time.monotonic() < limit:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=20)[1]
    assert process.returncode == 130
    assert stderr.endswith("stopped\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_slow_runs_are_repeated_three_times(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(PROJECT)
    from bench import harness
    from bench.declaration import Benchmark, Contender

    benchmark = Benchmark(
        prepare=dict,
        contenders=[Contender(name, setup=dict, run=dict, answer=dict) for name in ("a", "b")],
    )
    for slowest, asked, expected in ((59.0, None, 5), (61.0, None, 3), (61.0, 7, 7)):
        fake_run = {"wall_seconds": slowest, "answer": 0}
        monkeypatch.setattr(harness, "run_once", lambda *_, run=fake_run: dict(run))
        entries = harness.race(benchmark, "all", tmp_path, asked, lambda line: None)
        assert [len(entry.runs) for entry in entries] == [expected] * 2


def test_percentiles_of_waits(monkeypatch):
    """Over all runs together: the time that 99 of 100 events do not exceed."""
    monkeypatch.syspath_prepend(PROJECT)
    from bench import harness, report
    from bench.declaration import Contender

    assert [harness.percentile([3.0, 1.0, 2.0], percent) for percent in (1, 50, 67, 99)] == [
        1,
        2,
        3,
        3,
    ]
    measured = {"wall_seconds": 1.0, "cpu_seconds": 1.0, "peak_bytes": 1}
    first, second = (
        [number / 1000 for number in each] for each in (range(1, 151), range(151, 201))
    )
    runs = [{**measured, "waits": each} for each in (second, first)]
    entry = harness.Entry(Contender("ours", dict, dict, dict, waits=list), "", runs)
    summary = harness.summarise(entry, [entry], work=1.0)
    assert summary["waits"] == {"number": 200, "p50_seconds": 0.1, "p99_seconds": 0.198}
    assert report.row(summary)[-1] == "200 waits, p50 100.0 ms, p99 198.0 ms"
    entry.runs = [measured]
    assert "waits" not in harness.summarise(entry, [entry], work=1.0)


def test_clients_of_the_server_benchmark_time_each_first_token(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT)
    from bench import serving

    asked, now, is_read = [], 0.0, asyncio.Event()

    def clock():
        is_read.set()
        return now

    async def answer(reader, writer):
        nonlocal now
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.search(r"Content-Length: (\d+)", head)[1])
        asked.append(json.loads(await reader.readexactly(length)))
        is_read.clear()
        now += len(asked)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\n")
        await is_read.wait()
        now += 100.0
        writer.write(b"data: {}\n\n" * 3 + b"data: [DONE]\n\n")
        writer.close()

    async def measured():
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await serving.stream_all(port, clients=1, tokens=4, requests=3, own={"own": 1})

    monkeypatch.setattr(serving, "time", SimpleNamespace(perf_counter=clock))
    assert asyncio.run(asyncio.wait_for(measured(), 30)) == (3 * 4, [1.0, 2.0, 3.0])
    assert len({str(each["prompt"]) for each in asked}) == 3
    assert {(each["max_tokens"], each["own"]) for each in asked} == {(4, 1)}


def test_invalid_declarations_are_refused(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT)
    from bench.declaration import Benchmark, Contender, Limit, Target

    def contender(name, **options):
        return Contender(name, setup=dict, run=dict, answer=dict, **options)

    ours, part = contender("ours"), contender("part", against="ours", sample=0.5)
    for message, contenders, options in (
        ("same name", [ours, ours], {}),
        ("does not exist", [contender("peer", against="nobody")], {}),
        (r"in \(0, 1\]", [ours, contender("peer", against="ours", sample=2.0)], {}),
        ("whole workload", [contender("ours", sample=0.5)], {}),
        ("fresh process", [contender("ours", warmup=1)], {"fresh": True}),
        ("not a peer", [ours], {"targets": [Target("ours", at_least=1.0)]}),
        ("not a peer", [ours, part], {"targets": [Target(("part", "nobody"), at_least=1.0)]}),
        ("not of 0", [ours, part], {"targets": [Target((), at_least=1.0)]}),
        (
            "not of 2",
            [ours, part, contender("other"), contender("their", against="other")],
            {"targets": [Target(("part", "their"), at_least=1.0)]},
        ),
        ("does not scale", [ours, part], {"targets": [Target("part", 1.0, "peak_bytes")]}),
        ("no contender", [ours], {"targets": [Limit("nobody", 1.0)]}),
        ("needs result_bytes", [ours], {"targets": [Limit("ours", 1.0, "growth_bytes")]}),
    ):
        with pytest.raises(ValueError, match=message):
            Benchmark(prepare=dict, contenders=contenders, **options)


def test_generated_text_is_deterministic_and_has_the_promised_features(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT)
    from bench.workloads import english, mixed_scripts

    for make, digest in ((english, "e10b4b9dc51f7b0f"), (mixed_scripts, "3740dd9734c61f82")):
        text = make(200_000)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
        assert 200_000 <= len(text.encode()) < 201_000
        for promised in ("<|endoftext|>\n", "\n\n", "\r\n", "  ", "\t"):
            assert promised in text


@pytest.fixture
def vocabularies(tmp_path, monkeypatch):
    """The module, with small generated texts and without a network."""
    monkeypatch.syspath_prepend(PROJECT)
    from bench import vocabularies

    monkeypatch.setattr(vocabularies, "REAL_TEXT", tmp_path / "absent")
    monkeypatch.setattr(vocabularies, "TEXT_BYTES", 100_000)
    monkeypatch.setattr(vocabularies, "VOCAB_SIZE", 500)
    monkeypatch.setattr(vocabularies, "mixed_scripts", lambda _: "naïve 日本\n" * 500)
    monkeypatch.setattr(vocabularies, "HTML_FOLDERS", str(tmp_path / "html*"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    vocabularies.published_ranks.cache_clear()
    return vocabularies


def test_texts_and_vocabularies_of_the_encoding_benchmarks(vocabularies, tmp_path):
    folder = tmp_path / "cache" / "encoding-0"
    folder.mkdir(parents=True)
    found = vocabularies.tokenizer_texts(folder, ("gpt2", "o200k"))
    trained = [name for name, text in found.items() if isinstance(text, Path)]
    assert trained == [
        f"{text}, trained vocabulary"
        for text in ("generated English", "generated mixed scripts", "source code")
    ]
    assert "apt-get install python3-doc" in found["HTML, trained vocabulary"].reason
    assert found["source code, o200k"].reason.startswith("npm pack gpt-tokenizer gave no ranks")

    files = {file.name for file in (folder / "gpt2").iterdir()}
    assert {"tilth.json", "tokenizer.json", "fastokens.json", "ranks.tiktoken"} < files
    text = found["generated English, trained vocabulary"].read_text()
    ours = tilth.Tokenizer.load(folder / "gpt2" / "tilth.json")
    for name in ("tokenizer.json", "fastokens.json"):
        theirs = tokenizers.Tokenizer.from_file(str(folder / "gpt2" / name))
        assert theirs.encode(text).ids == ours.encode(text)

    code = found["source code, trained vocabulary"].read_text()
    assert len(code.encode()) >= 100_000
    library = Path(os.__file__).parent
    first = sorted(file.relative_to(library).as_posix() for file in library.glob("*.py"))[0]
    assert (library / first).read_text() in code.split("<|endoftext|>")
    before = (folder / "gpt2" / "tilth.json").stat().st_mtime_ns
    assert vocabularies.tokenizer_texts(folder, ("gpt2", "o200k")) == found
    assert (folder / "gpt2" / "tilth.json").stat().st_mtime_ns == before  # made once


def test_html_of_python(vocabularies, tmp_path):
    (tmp_path / "html-1").mkdir()  # without pages
    pages = tmp_path / "html-2"
    pages.mkdir()
    for name in ("index.html", "a.html", "b.html"):
        (pages / name).write_text(f"<p>{name}")
    (pages / "latin1.html").write_bytes(b"\xff")
    (tmp_path / "html-3").symlink_to(pages)
    assert vocabularies.html_folder() == pages.resolve()
    joined = vocabularies.joined_files(pages, pages.glob("*.html"))
    assert joined == "<p>a.html<|endoftext|><p>b.html<|endoftext|><p>index.html"


def test_a_wrong_download_is_not_used(vocabularies, tmp_path):
    (tmp_path / "cl100k_base.tiktoken").write_bytes(b"IQ== 0\n")
    found = vocabularies.published_ranks(tmp_path, "cl100k")
    assert "is not the file that OpenAI published; delete it" in found.reason


def test_growth_continues_and_prints_a_table(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(PROJECT)
    from bench import growth

    monkeypatch.setattr(growth, "english", lambda _: "one two three " * 300)
    monkeypatch.setattr(growth, "mixed_scripts", lambda _: "eins<|endoftext|>zwei 日本 " * 9)
    monkeypatch.setattr(growth, "BLOCK_BYTES", 5000)
    tokenizer = tilth.train_tokenizer(
        texts=["one two three"], vocab_size=270, special_tokens=["<|endoftext|>"]
    )
    tokenizer.save(tmp_path / "tilth.json")
    corpus = tmp_path / "20000.txt"
    growth.write_corpus(corpus, 20_000)
    assert 20_000 <= corpus.stat().st_size < 26_000
    parts = list(growth.blocks(corpus))
    assert b"".join(parts) == corpus.read_bytes()
    assert all(part.endswith(b"<|endoftext|>") for part in parts[:-1])

    ran = []

    def run(command, **_):
        ran.append(command[4:5])
        task, file, result = command[4:]
        growth.run_task(task, Path(file), Path(result))

    monkeypatch.setattr(growth, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(growth, "VOCAB_SIZE", 300)
    for _ in range(2):  # the second time, there is nothing to do
        growth.run_missing(
            {20_000: ["encode", "tokenize", "train"]}, tmp_path, tmp_path, keep=False
        )
    assert ran == [["encode"], ["tokenize"], ["train"]]
    assert not corpus.exists()
    assert not (tmp_path / "data").exists()
    results = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("*-20000.json"))]
    assert [result["task"] for result in results] == ["encode", "tokenize", "train"]
    faster = {**results[0], "bytes_per_second": 2 * results[0]["bytes_per_second"]}
    shown = growth.table([results[0], faster, *results[1:]])
    assert "encode: the slowest has 0.50 of the speed of the fastest (goal 0.9: MISSED)" in shown
    assert shown.count("\n| ") == 4
    monkeypatch.setattr(growth, "DISK_PER_BYTE", 1e15)
    with pytest.raises(SystemExit, match="free some, or leave the size out"):
        growth.run_missing({30_000: ["encode"]}, tmp_path, tmp_path, keep=False)


def test_every_benchmark_loads_and_is_listed():
    ended = subprocess.run(
        command(PROJECT / "bench", "--list"),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "splitting: Speed of splitting text into pieces" in ended.stdout


def test_package_does_not_import_benchmarks():
    for file in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "bench" for name in names), file


def test_readme_example_runs(tmp_path):
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (PROJECT / "bench" / "README.md").read_text(), re.M | re.S
    )
    (tmp_path / "summing.py").write_text(example)
    ended = subprocess.run(
        command(tmp_path, "--runs", "1"),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "numpy takes at least 1 times the time of sum" in ended.stdout

"""Training on two hosts: network namespaces with a link that is cut. Slow, and only for root."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.training.test_distributed import (
    ROOT,
    check_same_bits,
    finished,
    new_ranks,
    torchrun,
    wait_for,
    words_of,
)
from tilth.runs.run import open_run

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 20
# `python -m tilth` with a shorter timeout.
PROGRAM = f"""
import sys
from datetime import timedelta
from tilth.cli import main
from tilth.training import distributed

distributed.TIMEOUT = timedelta(seconds={TIMEOUT_SECONDS})
main()
"""


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


@pytest.fixture
def hosts():
    """Create two network namespaces with one link; return their names."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    names = [f"tilth-{os.getpid()}-{host}" for host in range(2)]
    for name in names:
        ip("netns", "add", name)
    try:
        link = ("link", "add", "eth9", "netns", names[0], "type", "veth")
        ip(*link, "peer", "name", "eth9", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth9")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth9", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


def start(hosts, port, program, words):
    """Start torchrun on both hosts, with one rank each."""
    launch = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    launch += ["--master-addr", "10.77.0.1", "--master-port", str(port)]
    own = {"GLOO_SOCKET_IFNAME": "eth9", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                *launch,
                "--node-rank",
                str(number),
                str(program),
                *map(str, words[2:]),
            ],
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, name in enumerate(hosts)
    ]


def test_a_cut_link_ends_both_hosts_and_they_resume_to_the_same_bits(hosts, stories, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    whole, run = tmp_path / "whole", tmp_path / "run"
    for process in start(hosts, 29511, program, words_of(stories.folder, whole)):
        assert finished(process)[0] == 0
    processes = start(hosts, 29512, program, words_of(stories.folder, run))
    wait_for(run / "checkpoints" / "step-000010", processes[0])
    ip("-n", hosts[0], "link", "set", "eth9", "down")
    then = time.monotonic()
    for process in processes:
        code, stderr = finished(process, TIMEOUT_SECONDS + 60)
        assert code != 0
        assert "another process of this training ended or cannot be reached" in stderr, stderr
    print(f"both ended {time.monotonic() - then:.0f} s after the cut")
    assert not open_run(run).is_finished
    ip("-n", hosts[0], "link", "set", "eth9", "up")
    for process in start(hosts, 29513, program, ("-m", "tilth", "resume", run)):
        code, stderr = finished(process)
        assert code == 0, stderr
    check_same_bits(run, whole)


def agent(port, words):
    """Start an agent of an elastic training of one to three agents, each with one rank."""
    launch = ("--nnodes", "1:3", "--rdzv-backend", "c10d", "--rdzv-id", "elastic")
    launch += ("--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", "5")
    return torchrun(1, *launch, *words, standalone=False, start_new_session=True)


def test_an_elastic_training_continues_with_the_agents_that_are_left(stories, tmp_path):
    """Three ranks have one, one and two of four microbatches; two ranks have two each."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    exact = ("--parallel.exact", "--microbatch-size", 3)
    words = words_of(stories.folder, run, *exact, steps=400)
    agents = [agent(29521, words) for _ in range(3)]
    wait_for(run / "checkpoints" / "step-000010", agents[0])
    [lost] = new_ranks(agents[2], 1, set())
    os.kill(agents[2].pid, signal.SIGKILL)
    os.kill(lost, signal.SIGKILL)
    for left in agents[:2]:
        code, stderr = finished(left, 300)
        assert code == 0, stderr
    finished(agents[2])
    whole_run = torchrun(1, *words_of(stories.folder, whole, *exact, steps=400))
    code, stderr = finished(whole_run)
    assert code == 0, stderr
    check_same_bits(run, whole)

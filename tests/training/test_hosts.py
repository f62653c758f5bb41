"""Training on two hosts: network namespaces with a link that is cut. Slow, and only for root."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.training.test_distributed import (
    LOOPBACK,
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


EXACT = ("--parallel.exact", "--microbatch-size", 3)


def train_alone(data, folder, steps):
    """Train in one process, to the bits of any number of ranks."""
    code, stderr = finished(torchrun(1, *words_of(data, folder, *EXACT, steps=steps)))
    assert code == 0, stderr


def agent(port, words, nodes="1:3", address="127.0.0.1", last_call=30, **options):
    """Start an agent of an elastic training, by default of one to three, each with one rank."""
    launch = ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-id", "elastic")
    launch += ("--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", "5")
    launch += ("--rdzv-conf", f"last_call_timeout={last_call}", "--local-addr", address)
    return torchrun(1, *launch, *words, standalone=False, start_new_session=True, **options)


def test_an_elastic_training_continues_with_the_agents_that_are_left(stories, tmp_path):
    """Three ranks have one, one and two of four microbatches; two ranks have two each."""
    run = tmp_path / "run"
    words = words_of(stories.folder, run, *EXACT, steps=400)
    agents = [agent(29521, words) for _ in range(3)]
    wait_for(run / "checkpoints" / "step-000010", agents[0])
    [lost] = new_ranks(agents[2], 1, set())
    os.kill(agents[2].pid, signal.SIGKILL)
    os.kill(lost, signal.SIGKILL)
    for left in agents[:2]:
        code, stderr = finished(left, 300)
        assert code == 0, stderr
    finished(agents[2])
    train_alone(stories.folder, tmp_path / "whole", 400)
    check_same_bits(run, tmp_path / "whole")


# Agents have ranks in the order of their addresses: the late one is the last, or the first.
@pytest.mark.parametrize("addresses", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_an_agent_that_joins_late(stories, tmp_path, monkeypatch, addresses):
    """Without a failure, the ranks start again, resume the run, and are two."""
    monkeypatch.setitem(LOOPBACK, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    run, steps = tmp_path / "run", 3000
    words = words_of(stories.folder, run, *EXACT, steps=steps)
    agents = []
    for number, address in enumerate(addresses):
        with (tmp_path / f"{number}.log").open("w") as log:  # more than a pipe holds
            port = 29531 + (addresses[0] > addresses[1])
            agents.append(agent(port, words, "1:2", address, 5, stdout=log, stderr=log))
        if number == 0:
            wait_for(run / "checkpoints" / "step-000010", agents[0])
    for each in agents:
        assert finished(each, 600)[0] == 0
    logs = [(tmp_path / f"{number}.log").read_text() for number in range(2)]
    assert "ranks    2, exact sums in order" in "".join(logs)
    assert "is a run already" not in "".join(logs)
    train_alone(stories.folder, tmp_path / "whole", steps)
    check_same_bits(run, tmp_path / "whole")


@pytest.mark.parametrize("hangs", [False, True])
def test_a_rank_killed_beside_that_of_another_agent(stories, tmp_path, hangs):
    """The agents count one failure each; or one and none, if the other rank hangs meanwhile.

    torch kills a rank that hangs after 30 s.
    """
    run, steps = tmp_path / "run", 400
    words = words_of(stories.folder, run, *EXACT, steps=steps)
    agents = []
    for number in range(2):
        with (tmp_path / f"{number}.log").open("w") as log:
            agents.append(agent(29541 + hangs, words, "2:2", stdout=log, stderr=log))
    wait_for(run / "checkpoints" / "step-000010", agents[0])
    [left], [lost] = (new_ranks(each, 1, set()) for each in agents)
    if hangs:
        os.kill(left, signal.SIGSTOP)
    os.kill(lost, signal.SIGKILL)
    for each in agents:
        assert finished(each, 300)[0] == 0
    train_alone(stories.folder, tmp_path / "whole", steps)
    check_same_bits(run, tmp_path / "whole")

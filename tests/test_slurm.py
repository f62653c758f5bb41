"""A real Slurm on loopback, started and stopped here: Debian's slurmctld, slurmd and munge."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.training.test_distributed import check_same_bits, finished, torchrun, words_of
from tilth.data import tokenize
from tilth.executors import Executor
from tilth.runs import open_run
from tilth.tokenizer import train_tokenizer

pytestmark = pytest.mark.slow

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
END = "<|endoftext|>"
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(number):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="module")
def slurm():
    """Start the daemons as children, and stop them."""
    if os.geteuid() or not all(map(shutil.which, PROGRAMS)):
        pytest.skip("needs root and Debian's slurmctld, slurmd, slurm-client and munge")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:  # short: it names a socket
        folder = Path(name)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        values = {"host": host, "folder": folder, "ports": free_ports(2), "cpus": os.cpu_count()}
        (folder / "slurm.conf").write_text(CONF.format(**values))

        def start(*words):
            log = stack.enter_context((folder / f"{words[0]}.log").open("wb"))
            process = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        options = {"socket": "munge.socket", "key-file": "munge.key", "seed-file": "seed"}
        options |= {"log-file": "munged.log", "pid-file": "munged.pid"}
        paths = [f"--{option}={folder / file}" for option, file in options.items()]
        start("munged", "--foreground", "--force", *paths)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        start("slurmctld", "-D", "-c", "-f", folder / "slurm.conf")
        start("slurmd", "-D", "-f", folder / "slurm.conf")
        until = time.monotonic() + 60
        while "idle" not in subprocess.run("sinfo", capture_output=True, text=True).stdout:  # noqa: PLW1510
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.5)
        yield


def test_tokenizing(slurm, tmp_path):
    stories = [f"Story {n}: the cat and the hat. " * (n % 7 + 1) for n in range(500)]
    (tmp_path / "a.txt").write_text(END.join(stories))
    tokenizer = train_tokenizer(texts=stories, vocab_size=300, special_tokens=[END])
    options = {"shard_tokens": 3_000}
    one = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "one", **options)
    options |= {"executor": Executor("slurm", 2), "tasks": 5}
    many = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "many", **options)
    for path in one.folder.iterdir():
        assert path.read_bytes() == (many.folder / path.name).read_bytes()
    assert sorted(many.folder.glob("jobs/*_log.out"))


def within(seconds, condition):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_training(slurm, stories, tmp_path, monkeypatch):
    """The script of docs/clusters.md: a signal before the time limit saves and requeues."""
    page = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text()
    (script,) = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    words = words_of(stories.folder, "runs/large")[2:]
    changes = {
        "--nodes=2": "--nodes=1",
        "#SBATCH --gpus-per-node=8\n": "",
        "--nnodes=2 --nproc-per-node=8": "--nnodes=1 --nproc-per-node=2 --local-addr 127.0.0.1",
        "$MASTER:29500": f"127.0.0.1:{free_ports(1)[0]}",
        "train openwebtext --data data/web --out runs/large --steps 40000": " ".join(
            map(str, words)
        ),
    }
    for old, new in changes.items():
        assert script.count(old) == 1
        script = script.replace(old, new)
    (tmp_path / "train.sh").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    job = run("sbatch", "--parsable", "--output=log", "train.sh")
    folder = tmp_path / "runs" / "large"
    within(200, (folder / "checkpoints" / "step-000010").exists)
    run("scancel", "--batch", "--signal=TERM", job)
    within(120, lambda: run("squeue", "-h", "-j", job, "-o", "%T") == "PENDING")
    assert "which is saved" in (tmp_path / "log").read_text()
    assert not open_run(folder).is_finished
    run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else it waits for two minutes
    within(400, lambda: run("squeue", "-h", "-j", job) == "")
    assert open_run(folder).is_finished, (tmp_path / "log").read_text()
    assert finished(torchrun(2, *words_of(stories.folder, tmp_path / "whole")))[0] == 0
    check_same_bits(folder, tmp_path / "whole")

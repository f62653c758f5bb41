"""A real Slurm on loopback, started and stopped here: Debian's slurmctld, slurmd and munge."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tilth.data import tokenize
from tilth.executors import Executor
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

"""The examples of docs/clusters.md: their words parse, their lines are those that are submitted."""

import re
import shlex
from pathlib import Path

import pytest
from torch.distributed.run import parse_args as parse_torchrun

from tilth.cli.app import app
from tilth.executors import Executor, Resources, run_tasks

PAGE = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text()
TEXTS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCRIPTS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MANIFESTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def check_command(words):
    assert words.pop(0) == "tilth"
    assert app.parse_args(words, print_error=False, exit_on_error=False)


def test_commands_parse():
    lines = "".join(TEXTS).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines]
    assert [words[:2] for words in commands] == [
        ["tilth", "tokenizer"],
        ["tilth", "tokenize"],
        ["tilth", "lab"],
        ["sbatch", "--time=1-0"],
    ]
    for words in commands[:3]:
        check_command(words)
    check_command(shlex.split(commands[3][-1]))


def check_time_to_save(script, seconds):
    """Check that torchrun gives its ranks the time between SIGTERM and SIGKILL, but for 10 s."""
    (words,) = re.findall(r"\btorchrun (.+ -m tilth) ", script.replace("\\\n", " "))
    assert parse_torchrun(shlex.split(words)).shutdown_timeout == seconds - 10


def test_the_script_of_slurm():
    (script,) = SCRIPTS
    (seconds,) = re.findall(r"#SBATCH --signal=B:TERM@(\d+)", script)
    check_time_to_save(script, int(seconds))


def touch(path):
    path.touch()


def test_submitted_lines(slurm, tmp_path):
    """The lines in the table are those of the script for its options."""
    record = slurm(runs=True)
    resources = Resources(4 * 3600, "cpu", 1, 2)
    paths = [tmp_path / str(number) for number in range(3)]
    done = run_tasks(touch, paths, Executor("slurm", 3, resources=resources), tmp_path / "jobs")
    assert sorted(done) == [0, 1, 2]
    submitted = record.read_text().replace("--array=0-2%3", "--array=0-63%64")
    lines = re.findall(r"`(#SBATCH [^`]+)`", PAGE)
    assert len(lines) == 6
    for line in lines:
        assert f"{line}\n" in submitted


def test_the_manifest_of_kubernetes():
    yaml = pytest.importorskip("yaml")
    (manifest,) = map(yaml.safe_load, MANIFESTS)
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == manifest["spec"]["elasticPolicy"]["maxReplicas"]
    pod = worker["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "pytorch"
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == int(manifest["spec"]["nprocPerNode"])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    # test_hosts.py: an agent that joins late.
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container["env"]
    (script,) = container["args"]
    assert script.rstrip().endswith(" -m tilth $work")
    check_time_to_save(script, pod["terminationGracePeriodSeconds"])
    words = [shlex.split(each) for each in re.findall(r'work="(.+)"', script)]
    assert [each[0] for each in words] == ["resume", "train"]
    for each in words:
        check_command(["tilth", *each])

"""The predicted traffic against the bytes that a loopback interface counts."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tilth.accounting.parallel import gradient_traffic, sharded_traffic
from tilth.config.parameters import parameter_shapes
from tilth.recipes import tiny

ROOT = Path(__file__).parents[2]
STEPS = (4, 14)
# In a network of its own: nothing else is counted.
COUNT = """
ip link set lo up
before=$(cat /sys/class/net/lo/statistics/tx_bytes)
{python} -m torch.distributed.run --nnodes 1 --nproc-per-node {ranks} --rdzv-backend c10d \\
    --rdzv-endpoint 127.0.0.1:29511 -m tilth train tiny --data {data} --out {out} --steps {steps} \\
    --batch-size 8 --machine.threads 1 --machine.dtype float32 --watch.sample-every 0 \\
    --watch.evaluate-every 0 {more} >&2 || exit 1
expr $(cat /sys/class/net/lo/statistics/tx_bytes) - $before
"""


def count_bytes(data, folder, ranks, steps, more):
    names = {"python": sys.executable, "data": data.folder, "out": folder / f"{ranks}-{steps}"}
    script = COUNT.format(**names, ranks=ranks, steps=steps, more=more)
    # sysfs shows the interfaces of the network in which it was mounted.
    script = "mount -t sysfs sysfs /sys\n" + script
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_predicted_and_counted(stories, tmp_path, strategy, ranks, number):
    """With two microbatches, ddp sends nothing more; fsdp gathers the weights again."""
    isolated = ["unshare", "--net", "--mount", "true"]
    if subprocess.run(isolated, check=False, capture_output=True).returncode:
        pytest.skip("needs root, for a network namespace")
    more = f"--microbatch-size {8 // ranks // number} --watch.norms-every 0 --watch.save-every 0"
    more += " --parallel.shards 2" if strategy == "fsdp" else " --parallel.strategy ddp"
    few, many = (count_bytes(stories, tmp_path, ranks, steps, more) for steps in STEPS)
    counted = (many - few) / (STEPS[1] - STEPS[0])
    model = tiny(stories).model
    predicted = ranks * gradient_traffic(model, ranks)
    if strategy == "fsdp":
        predicted = ranks * sharded_traffic(model, ranks, 2, "muon", num_microbatches=number)
        # gloo's reduce-scatter is an all-reduce: it also gathers the gradients of matrices.
        matrices = sum(math.prod(s) for _, s in parameter_shapes(model) if len(s) == 2)
        predicted += ranks * 2 * matrices  # half of them, 4 bytes each
    print(f"{ranks} ranks, {more}: {predicted:,.0f} bytes predicted, {counted:,.0f} counted")
    assert counted == pytest.approx(predicted, rel=0.05)

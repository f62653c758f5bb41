"""Fake commands of Slurm: sbatch runs the jobs of an array at once, on this machine."""

import os
import sys

import pytest

SBATCH = """#!{python}
import os, re, subprocess, sys
text = open(sys.argv[1]).read()
with open({record!r}, "a") as record:
    record.write(text)
if {refuses}:
    sys.exit("sbatch: error: invalid partition specified: moon")
tasks = re.search(r"--array=0-([0-9]+)", text)
for task in range(int(tasks[1]) + 1 if tasks else 1) if {runs} else ():
    ids = {{"SLURM_JOB_ID": str(4242 + task), "SLURM_PROCID": "0"}}
    if tasks:
        ids |= {{"SLURM_ARRAY_JOB_ID": "4242", "SLURM_ARRAY_TASK_ID": str(task)}}
    # Nobody waits for it: submitit reads our own output to its end.
    silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen(["bash", "-c", text], env={{**os.environ, **ids}}, **silent)
print("Submitted batch job 4242")
"""
SRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
assert words.pop(0) == "--unbuffered"
logs = {{}}
while words[0] in ("--output", "--error"):
    name, path = words.pop(0), words.pop(0)
    for mark, variable in (("%A", "ARRAY_JOB_ID"), ("%a", "ARRAY_TASK_ID"), ("%j", "JOB_ID")):
        path = path.replace(mark, os.environ.get("SLURM_" + variable, ""))
    logs[name] = open(path.replace("%t", "0"), "a")
sys.exit(subprocess.call(words, stdout=logs["--output"], stderr=logs["--error"]))
"""
# No accounting: submitit reads results. A Slurm that is installed must not answer instead.
SACCT = "#!{python}\nprint('JobID|State|NodeList')\n"
SCANCEL = "#!{python}\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put fake Slurm commands on the PATH; return the file that records submitted jobs."""

    def install(*, runs=False, refuses=False):
        programs, record = tmp_path / "bin", tmp_path / "record"
        programs.mkdir()
        values = {"python": sys.executable, "record": str(record), "runs": runs}
        fakes = {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": SCANCEL}
        for name, text in fakes.items():
            (programs / name).write_text(text.format(**values, refuses=refuses))
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        return record

    return install

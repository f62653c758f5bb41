"""`tilth verify`: whether what lies on disk is what was written."""

import json as json_module
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilth.cli.options import Json


def verify(
    path: Annotated[Path, Parameter(help="A data folder or a run directory.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Read every byte, and say of each file whether it is whole."""
    if (path / "config.toml").exists():
        _verify_run(path, json)
    else:
        _verify_data(path, json)


def _verify_run(path: Path, json: bool) -> None:
    from tilth.runs.run import open_run, verify_run

    findings = list(verify_run(open_run(path)))
    problems = [(name, problem) for name, problem in findings if problem]
    if json:
        found = [{"file": name, "problem": problem} for name, problem in findings]
        print(json_module.dumps({"path": str(path), "is_whole": not problems, "found": found}))
    else:
        for name, problem in findings:
            print(f"{name:<26} {problem or 'whole'}")
    if problems:
        raise ValueError(f"{path} is damaged: {problems[0][1]}.")
    if not json:
        print(f"{path} is whole")


def _verify_data(path: Path, json: bool) -> None:
    from tilth.cli.progress import progress
    from tilth.data import verify_data

    with progress() as report:
        findings = list(verify_data(path, report))
    problems = [finding for finding in findings if finding.problem]
    if json:
        blocks = [
            {"file": f.file, "block": f.block, "of": f.num_blocks, "problem": f.problem}
            for f in findings
        ]
        print(json_module.dumps({"path": str(path), "is_whole": not problems, "found": blocks}))
    else:
        for file in dict.fromkeys(finding.file for finding in findings):
            of_file = [finding for finding in findings if finding.file == file]
            num_blocks = max(finding.num_blocks for finding in of_file)
            whole = sum(1 for finding in of_file if finding.block and not finding.problem)
            is_whole = not any(finding.problem for finding in of_file)
            state = "whole" if is_whole else "damaged"
            print(f"{file:<22} {state:<8} {whole:,} of {num_blocks:,} blocks are as written")
            for finding in of_file:
                if finding.problem:
                    print(f"  {finding}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(
            f"{path} is damaged: {problems[0]}{more}; restore a copy, or tokenize again."
        )
    if not json:
        print(f"{path} is whole")

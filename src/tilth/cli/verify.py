"""`tilth verify`: whether what lies on disk is what was written."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tilth.cli.options import Json

Findings = tuple[list[dict[str, Any]], list[str], str | None]
"""For JSON, for people, and the sentence about the first problem."""


def verify(
    path: Annotated[Path, Parameter(help="A data folder or a run directory.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Read every byte, and say of each file whether it is whole."""
    is_run = (path / "config.toml").exists()
    found, lines, problem = _verify_run(path) if is_run else _verify_data(path)
    if json:
        print(json_module.dumps({"path": str(path), "is_whole": not problem, "found": found}))
    else:
        for line in lines:
            print(line)
    if problem:
        raise ValueError(f"{path} is damaged: {problem}.")
    if not json:
        print(f"{path} is whole")


def _verify_run(path: Path) -> Findings:
    from tilth.runs.run import open_run, verify_run

    found = [{"file": name, "problem": problem} for name, problem in verify_run(open_run(path))]
    lines = [f"{each['file']:<26} {each['problem'] or 'whole'}" for each in found]
    return found, lines, next((each["problem"] for each in found if each["problem"]), None)


def _verify_data(path: Path) -> Findings:
    from tilth.cli.progress import progress
    from tilth.data import verify_data

    with progress() as report:
        findings = list(verify_data(path, report))
    lines = []
    for file in dict.fromkeys(finding.file for finding in findings):
        of_file = [finding for finding in findings if finding.file == file]
        num_blocks = max(finding.num_blocks for finding in of_file)
        whole = sum(1 for finding in of_file if finding.block and not finding.problem)
        state = "damaged" if any(finding.problem for finding in of_file) else "whole"
        lines.append(f"{file:<22} {state:<8} {whole:,} of {num_blocks:,} blocks are as written")
        lines += [f"  {finding}" for finding in of_file if finding.problem]
    found = [
        {"file": f.file, "block": f.block, "of": f.num_blocks, "problem": f.problem}
        for f in findings
    ]
    problems = [finding for finding in findings if finding.problem]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    hint = "restore a copy, or tokenize again"
    return found, lines, f"{problems[0]}{more}; {hint}" if problems else None

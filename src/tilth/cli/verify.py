"""`tilth verify`: check the integrity of a data folder, a run or a model folder."""

from pathlib import Path
from typing import Any

from tilth.cli.options import Json
from tilth.cli.output import print_result

Findings = tuple[list[dict[str, Any]], list[str], list[str]]
"""For JSON, for people, and the problems."""


def verify(path: Path, /, *, json: Json = False) -> None:
    """Check the integrity of a data folder, a run or a model folder: compare checksums.

    Args:
        path: Data folder, run directory, or folder that `tilth export` or `tilth import` wrote.

    Examples:
        tilth verify data/stories
        tilth verify runs/first --json
    """
    is_run = (path / "config.toml").exists()
    is_model = not is_run and (path / "config.json").exists()
    if is_run:
        from tilth.runs import open_run, verify_run

        found, lines, problems = _by_file(dict(verify_run(open_run(path))))
    elif is_model:
        from tilth.formats.huggingface import verify_model_folder

        found, lines, problems = _by_file(dict(verify_model_folder(path)))
    else:
        found, lines, problems = _verify_data(path)
    if not problems:
        lines.append(f"{path} is whole")
    results = {"path": str(path), "is_whole": not problems, "found": found}
    print_result(results, lines, as_json=json)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        rest = "" if is_run or is_model else f"{more}; restore a copy, or tokenize again"
        raise ValueError(f"{path} is damaged: {problems[0]}{rest}.")


def _by_file(found: dict[str, str | None]) -> Findings:
    return (
        [{"file": name, "problem": problem} for name, problem in found.items()],
        [f"{name:<26} {problem or 'whole'}" for name, problem in found.items()],
        [problem for problem in found.values() if problem],
    )


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
        damaged = [f"  {finding}" for finding in of_file if finding.problem]
        state = "damaged" if damaged else "whole"
        lines.append(f"{file:<22} {state:<8} {whole:,} of {num_blocks:,} blocks are as written")
        lines += damaged
    return (
        [
            {"file": f.file, "block": f.block, "of": f.num_blocks, "problem": f.problem}
            for f in findings
        ],
        lines,
        [str(finding) for finding in findings if finding.problem],
    )

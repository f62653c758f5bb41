"""Evaluation on tasks: the built-in ones, and those of lm-eval with its own runner.

`TilthLM` lets lm-eval score and generate with a `LanguageModel`. lm-eval 0.4 does not look for
models of other packages, so its command line is started here, with the model `tilth` registered:

    python -m tilth.exporting.evaluation_harness --model tilth --model_args path=runs/first \
        --tasks task.yaml
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tilth.errors import import_extra
from tilth.exporting.tasks import TASKS, ContinuationScorer, TaskName, run_task
from tilth.files import FileError, Progress
from tilth.formatting import suggestion
from tilth.generation import LanguageModel, load

log = logging.getLogger(__name__)

# Task files and data sets are local; without these, datasets asks the hub first. Set before the
# libraries are imported.
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def evaluate_tasks(
    model: LanguageModel,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Evaluate a model on tasks; return a row for each metric.

    A task is a built-in name (`continuation`, `agreement`, `cloze`; `all` for the three), or the
    path of a task file of lm-eval (YAML). A task file may name Python functions, which are run: use
    files that you trust.
    """
    rows: list[dict[str, Any]] = []
    files: list[Path] = []
    for task in tasks:
        if task == "all":
            names: Sequence[str] = TASKS
        elif task in TASKS:
            names = [task]
        elif Path(task).suffix in (".yaml", ".yml"):
            if not Path(task).is_file():
                raise FileError(task, "does not exist or is not a file", "check the path")
            files.append(Path(task))
            continue
        else:
            hint = suggestion(task, ["all", *TASKS], "name a built-in task or a YAML file.")
            raise ValueError(f"there is no built-in task {task!r}; {hint}")
        for name in names:
            found = run_task(model, cast("TaskName", name), limit=limit, progress=progress)
            rows.append({**asdict(found), "metric": "acc"})
    if files:
        rows += _run_files(model, files, limit)
    return rows


def _run_files(
    model: LanguageModel, files: Sequence[Path], limit: int | None
) -> list[dict[str, Any]]:
    """Run task files with lm-eval; its standard error gives the interval."""
    for name in OFFLINE:
        os.environ.setdefault(name, "1")
    evaluator = import_extra("lm_eval.evaluator", "Evaluating a task file")
    manager = import_extra("lm_eval.tasks", "Evaluating a task file")
    loader = import_extra("lm_eval.tasks._yaml_loader", "Evaluating a task file")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        configs = [loader.load_yaml(path, resolve_func=True) for path in files]
        with redirect_stdout(sys.stderr):  # it prints progress
            found = evaluator.simple_evaluate(
                model=harness_model(model),
                tasks=configs,
                limit=limit,
                task_manager=manager.TaskManager(include_defaults=False),
                bootstrap_iters=1000,
            )
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, FileError):
            raise
        raise ValueError(f"lm-eval cannot run {files[0]} ({_first_line(error)})") from error
    except Exception as error:  # of YAML, of a template, of a function of the task file
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise ValueError(f"lm-eval cannot run {files[0]} ({reason}); correct the file") from error
    return list(_rows(found))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:300]


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of lm-eval as rows, with 95% intervals from its standard errors."""
    rows = []
    for task, values in found["results"].items():
        counts = found.get("n-samples", {}).get(task, {})
        samples = found.get("samples", {}).get(task, [])
        choices = {len(each.get("arguments", ())) for each in samples}
        chance = 1 / choices.pop() if len(choices) == 1 and "acc,none" in values else None
        for key, value in values.items():
            metric, _, filtered = key.partition(",")
            if not filtered or metric.endswith("_stderr") or not isinstance(value, float | int):
                continue
            error = values.get(f"{metric}_stderr,{filtered}")
            row = {"task": task, "metric": metric, "items": counts.get("effective")}
            row["accuracy" if metric.startswith("acc") else "value"] = float(value)
            if isinstance(error, float):
                row |= {"low": value - 1.96 * error, "high": value + 1.96 * error}
            if metric.startswith("acc"):
                row["chance"] = chance
            rows.append(row)
    return rows


def harness_model(model: LanguageModel) -> Any:  # noqa: ANN401, a class of lm-eval
    """Return a model of lm-eval that scores and generates with a `LanguageModel`."""
    return _harness_class()(model=model)


def _harness_class() -> Any:  # noqa: ANN401, a class of lm-eval
    """Define the class when lm-eval, which is an extra, is needed; register it as `tilth`."""
    registry = import_extra("lm_eval.api.registry", "lm-eval")
    if "tilth" in registry.model_registry:
        return registry.get_model("tilth")
    import_extra("lm_eval.models", "lm-eval")  # its own models register themselves
    base = import_extra("lm_eval.api.model", "lm-eval").TemplateLM
    utils = import_extra("lm_eval.utils", "lm-eval")

    class TilthLM(base):  # type: ignore[misc,valid-type]
        """A `LanguageModel` for lm-eval; `path` is what `tilth.load` takes."""

        def __init__(
            self,
            path: str | None = None,
            model: LanguageModel | None = None,
            device: str | None = None,
            batch_size: int | str | None = None,
            max_batch_size: int | None = None,
            **options: Any,  # noqa: ANN401
        ) -> None:
            super().__init__()
            if model is None:
                if path is None:
                    raise ValueError("name the run: --model_args path=RUN")
                model = _load(path, device, options)
            self.model = model

        @property
        def eot_token_id(self) -> int:
            """The id of the end token."""
            end_id = self.model.end_id
            if end_id is None:
                raise ValueError("the tokenizer has no end token, which lm-eval needs")
            return end_id

        @property
        def prefix_token_id(self) -> int:
            """The id before a text without context."""
            return (self.model.begin_ids or [self.eot_token_id])[0]

        @property
        def max_length(self) -> int:
            """The context length."""
            return self.model.config.context_length

        @property
        def tokenizer_name(self) -> str:
            """A name for caches."""
            return self.model.tokenizer.fingerprint

        def tok_encode(
            self,
            string: str,
            add_special_tokens: bool | None = None,
            **_options: Any,  # noqa: ANN401
        ) -> list[int]:
            """Return the ids of a text; special tokens in it are recognised."""
            return self.model.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens))

        def _loglikelihood_tokens(
            self,
            requests: list[tuple[tuple[str, str], list[int], list[int]]],
            **_options: Any,  # noqa: ANN401
        ) -> list[tuple[float, bool]]:
            # In the order of the ids, a request shares the longest beginning with the one before.
            scorer = ContinuationScorer(self.model)
            order = sorted(range(len(requests)), key=lambda i: requests[i][1] + requests[i][2])
            found: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
            for index in order:
                _, context, continuation = requests[index]
                found[index] = scorer.score(context, continuation)
            return found

        def loglikelihood_rolling(
            self, requests: Sequence[Any], disable_tqdm: bool = False
        ) -> list[float]:
            """Return the log-probability of whole texts, in windows of the context length."""
            totals = []
            for request in requests:
                windows = [
                    utils.make_disjoint_window(window)
                    for window in utils.get_rolling_token_windows(
                        token_list=self.tok_encode(request.args[0]),
                        prefix_token=self.prefix_token_id,
                        max_seq_len=self.max_length,
                        context_len=1,
                    )
                ]
                scored = self._loglikelihood_tokens([(("", ""), *each) for each in windows])
                totals.append(sum(total for total, _ in scored))
            return totals

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            """Continue texts up to a stop string, the end token or a number of tokens."""
            texts = []
            for request in requests:
                context, given = request.args
                until = given.get("until") or []
                stop = [until] if isinstance(until, str) else [each for each in until if each]
                count = int(given.get("max_gen_toks", 256))
                temperature = float(given.get("temperature", 0.0))
                if not given.get("do_sample", temperature > 0):
                    temperature = 0.0
                room = max(1, self.max_length - count)
                ids = self.tok_encode(context)[-room:]
                stream = self.model.generate(
                    ids, max_tokens=count, temperature=temperature, stop=stop
                )
                texts.append("".join(stream))
            return texts

    return registry.register_model("tilth")(TilthLM)


def _load(path: str, device: str | None, options: dict[str, Any]) -> LanguageModel:
    """Load a model; on the CPU if the device, which lm-eval names by default, is missing."""
    if device not in (None, "cpu"):
        try:
            return load(path, device=device, **options)
        except ValueError as error:
            if "cannot be used" not in str(error) or isinstance(error, FileError):
                raise
            log.warning("%s is not available; evaluating on the CPU.", device)
    return load(path, **options)


def main() -> None:
    """Run the command line of lm-eval with the model `tilth` registered."""
    _harness_class()
    import_extra("lm_eval.__main__", "lm-eval").cli_evaluate()


if __name__ == "__main__":
    main()

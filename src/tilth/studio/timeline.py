"""The checkpoints of a run over its steps: the page Time, and two models compared on a text.

Every number is that of `tilth.load(run, step=step)`: `LanguageModel.score` and `generate`.
"""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

from tilth.generation.language_model import LanguageModel
from tilth.generation.sampling import Sampling
from tilth.schema import Length, Range
from tilth.studio.curves import Window, curve_of
from tilth.studio.errors import RequestError, unreadable
from tilth.studio.folder import Folder
from tilth.studio.inspecting import MAX_CHARACTERS, read_text, shown
from tilth.studio.models import Models
from tilth.studio.runs import Runs

MAX_MOMENT_CHARACTERS, MAX_MOMENT_TOKENS = 4_000, 300

Step = Annotated[int, Range(at_least=0, at_most=2**63 - 1)]


@dataclass(frozen=True)
class Steps:
    """The model whose checkpoints are listed."""

    model: str


@dataclass(frozen=True)
class Moment:
    """A checkpoint that reads a text and continues a prompt."""

    model: str
    step: Step
    text: Annotated[str, Length(at_most=MAX_MOMENT_CHARACTERS)] = ""
    prompt: Annotated[str, Length(at_most=MAX_MOMENT_CHARACTERS)] = ""
    max_tokens: Annotated[int, Range(at_least=0, at_most=MAX_MOMENT_TOKENS)] = 0
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True)
class Sides:
    """Two models that read a text; without a step, the best checkpoint of a run."""

    model: str
    other: str
    text: Annotated[str, Length(at_most=MAX_CHARACTERS)]
    step: Step | None = None
    other_step: Step | None = None


class Timeline:
    """The checkpoints of the runs of a folder; they are loaded for one request."""

    def __init__(self, folder: Folder, models: Models, runs: Runs) -> None:
        self._folder, self._models, self._runs = folder, models, runs

    def steps(self, asked: Steps) -> dict[str, Any]:
        """Return the steps of the checkpoints of a run, and the evaluations in its log.

        Another model has no steps.
        """
        try:
            self._folder.find(asked.model, "run")
        except KeyError:
            if asked.model in self._folder.models():
                return {"steps": [], "valid": {"x": [], "y": []}, "tokens_per_step": 0, "total": 0}
            raise RequestError(404, "the folder has no model of this name.") from None
        run = self._runs.run(asked.model)
        metrics, _ = self._runs.logs(asked.model)
        metrics.update()
        with metrics.lock:
            valid = curve_of(metrics, "bits_per_byte", "step", Window(), flops_per_token=0.0)
        self._runs.release([])
        return {
            "steps": [checkpoint.step for checkpoint in run.history()],
            "valid": valid,
            "tokens_per_step": run.config.tokens_per_step,
            "total": run.config.steps,
        }

    def load(self, run_id: str, step: int) -> LanguageModel:
        """Load the checkpoint of a step; it is not shared. Raises RequestError if there is none."""
        run = self._runs.run(run_id)
        found = next((each for each in run.history() if each.step == step), None)
        if found is None:
            raise RequestError(404, f"{run_id} has no checkpoint of step {step}.")
        try:
            if not all(map(self._folder.has_inside, (found.folder, *found.folder.iterdir()))):
                sentence = f"step {step} of {run_id} links to files outside the folder."
                raise RequestError(400, sentence)
            return self._models.load_once(found.folder)
        except (OSError, ValueError, MemoryError) as error:
            if not found.folder.is_dir():  # a training has removed it meanwhile
                raise RequestError(404, f"{run_id} has no checkpoint of step {step}.") from error
            raise unreadable(f"step {step} of {run_id} cannot be loaded", error) from error

    def moment(self, asked: Moment) -> dict[str, Any]:
        """Return what a checkpoint makes of a text and of a prompt."""
        model = self.load(asked.model, asked.step)
        written = None
        if asked.max_tokens:
            options = vars(asked.sampling)
            stream = model.generate(asked.prompt, max_tokens=asked.max_tokens, **options)
            written = "".join(stream)
        return {"step": asked.step, "written": written, "read": read_text(model, asked.text)}


def compare_readings(first: LanguageModel, second: LanguageModel, text: str) -> dict[str, Any]:
    """Return the bits of a text under two models, aligned where both have the end of a token.

    With the same tokenizer that is at each token. A segment has its bits by both models, None
    where a model does not score the beginning of the text.
    """
    models, sides = (first, second), [read_text(model, text) for model in (first, second)]
    contents = [
        [model.tokenizer.token(token["id"]) for token in side["tokens"]]
        for model, side in zip(models, sides, strict=True)
    ]
    whole = sorted((b"".join(each) for each in contents), key=len)
    is_aligned = whole[1].endswith(whole[0])  # else a tokenizer changes the text
    return {
        "sides": [
            {**side, "vocab_size": len(model.tokenizer)}
            for model, side in zip(models, sides, strict=True)
        ],
        "has_same_tokenizer": first.tokenizer.fingerprint == second.tokenizer.fingerprint,
        "segments": _segments(contents, sides) if is_aligned else None,
    }


def _segments(contents: list[list[bytes]], sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the shortest parts of a text that are whole tokens of both models."""
    # Distances from the end of the text, as a model may not score the first token.
    left = [
        [*accumulate(map(len, reversed(each)), initial=0)][
            ::-1
        ]  # before each token, and at the end
        for each in contents
    ]
    shared = sorted({*left[0]} & {*left[1]}, reverse=True)
    begins = shared if left[0][0] == left[1][0] else [max(left[0][0], left[1][0]), *shared]
    found: list[dict[str, Any]] = []
    places = [0, 0]
    for end in begins[1:]:
        tokens, bits = [], []
        for which, side in enumerate(sides):
            begun = places[which]
            while left[which][places[which]] > end:
                places[which] += 1
            own = side["tokens"][begun : places[which]]
            tokens.append([begun, places[which]])
            bits.append(sum(token["bits"] for token in own) if own else None)
        longest = max(
            (b"".join(each[slice(*own)]) for each, own in zip(contents, tokens, strict=True)),
            key=len,
        )
        found.append({"text": shown(longest), "tokens": tokens, "bits": bits})
    return found

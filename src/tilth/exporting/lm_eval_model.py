"""The model `tilth` of lm-eval, which scores and generates with a `LanguageModel`.

lm-eval is an extra, so this module is imported only where it is present: by `evaluation_harness`,
and by lm-eval itself, which finds `TilthLM` through the entry point `lm_eval.models`.
"""

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from tilth.exporting.tasks import ContinuationScorer
from tilth.files import FileError
from tilth.generation import LanguageModel, load

log = logging.getLogger(__name__)

BATCH_SIZE = 16


class TilthLM(TemplateLM):  # type: ignore[misc]  # lm-eval has no types
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
        # lm-eval gives 1 where the user gives nothing; also "auto".
        given = str(batch_size)
        self.batch_size = int(given) if given.isdecimal() and int(given) > 1 else BATCH_SIZE

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
        order = sorted(range(len(requests)), key=lambda i: requests[i][1] + requests[i][2])
        scorer = ContinuationScorer(self.model, min(self.batch_size, max(1, len(requests))))
        scores = scorer.score_batch([requests[i][1:] for i in order])
        found = dict(zip(order, scores, strict=True))
        return [found[i] for i in range(len(requests))]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-probability of whole texts, in windows of the context length."""
        totals = []
        for request in requests:
            windows = [
                make_disjoint_window(window)
                for window in get_rolling_token_windows(
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
        texts: list[str] = []
        # Requests of one task have the same options: one batch.
        for options, group in groupby(requests, lambda request: _options_of(request.args[1])):
            space = max(1, self.max_length - options["max_tokens"])
            prompts = [self.tok_encode(request.args[0])[-space:] for request in group]
            texts += self.model.generate_batch(prompts, **options)
        return texts


def _options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `generate` for those of a request."""
    until = given.get("until") or []
    temperature = float(given.get("temperature", 0.0))
    if not given.get("do_sample", temperature > 0):
        temperature = 0.0
    return {
        "max_tokens": int(given.get("max_gen_toks", 256)),
        "temperature": temperature,
        "stop": [until] if isinstance(until, str) else [each for each in until if each],
    }


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

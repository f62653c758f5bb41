"""Counters of the server, in the text format of Prometheus."""

from collections import Counter
from dataclasses import dataclass, field

LIMITS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper limits of the histogram of the time to the first token, in seconds."""


OTHER = "other"


@dataclass
class Metrics:
    """What the server has done since it started; used in the thread of the event loop only."""

    paths: frozenset[str] = frozenset()
    """Those that exist; all others share a label, as a client can make up any number of them."""
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By path and status."""
    prompt_tokens: int = 0
    new_tokens: int = 0
    first_token: Counter[float] = field(default_factory=Counter)
    """Requests by the smallest limit that their time to the first token does not exceed."""
    first_token_sum: float = 0.0
    first_token_count: int = 0

    def count(self, path: str, status: int) -> None:
        """Count a response."""
        self.requests[path if path in self.paths else OTHER, status] += 1

    def add(self, prompt_tokens: int, new_tokens: int, first_token_seconds: float | None) -> None:
        """Count a text."""
        self.prompt_tokens += prompt_tokens
        self.new_tokens += new_tokens
        if first_token_seconds is not None:
            self.first_token_sum += first_token_seconds
            self.first_token_count += 1
            limit = next((each for each in LIMITS if first_token_seconds <= each), None)
            if limit is not None:
                self.first_token[limit] += 1

    def text(self, loads: dict[str, tuple[int, int]]) -> str:
        """Return all metrics; `loads` has the numbers of running and waiting requests by model."""
        lines = _family("requests_total", "counter", "HTTP requests by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'tilth_requests_total{{path="{path}",status="{status}"}} {count}')
        for name, count, what in (
            ("prompt_tokens_total", self.prompt_tokens, "Tokens of prompts."),
            ("generated_tokens_total", self.new_tokens, "Generated tokens."),
        ):
            lines += [*_family(name, "counter", what), f"tilth_{name} {count}"]
        for place, name in enumerate(("running_sequences", "waiting_sequences")):
            lines += _family(name, "gauge", "Sequences by model.")
            for model_id, load in sorted(loads.items()):
                lines.append(f'tilth_{name}{{model="{_escaped(model_id)}"}} {load[place]}')
        name = "first_token_seconds"
        lines += _family(name, "histogram", "Time to the first token.")
        total = 0
        for limit in LIMITS:
            total += self.first_token[limit]
            lines.append(f'tilth_{name}_bucket{{le="{limit:g}"}} {total}')
        lines.append(f'tilth_{name}_bucket{{le="+Inf"}} {self.first_token_count}')
        lines.append(f"tilth_{name}_sum {self.first_token_sum:.6f}")
        lines.append(f"tilth_{name}_count {self.first_token_count}")
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP tilth_{name} {what}", f"# TYPE tilth_{name} {kind}"]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

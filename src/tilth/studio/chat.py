"""Render a chat template to a prompt, in a process of its own.

A template comes with a model, so it is untrusted: jinja2's sandbox keeps it from Python's objects,
and the process has limits of time and memory that a loop or a huge string cannot exceed.

    python -m tilth.studio.chat < '{"template": "...", "messages": [...], ...}'
"""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tilth.errors import import_extra

SECONDS, BYTES, MAX_PROMPT_CHARACTERS = 5, 1 << 30, 1 << 22


class TemplateError(ValueError):
    """The template cannot render the messages."""


def render(
    template: str,
    messages: Sequence[Mapping[str, str]],
    special_tokens: Mapping[str, str],
) -> str:
    """Render messages to a prompt that ends where the answer begins.

    Args:
        template: The jinja2 template of a model.
        messages: Each has a role and a content.
        special_tokens: Variables such as `bos_token` and `eos_token`.

    """
    asked = {"template": template, "messages": list(messages), "variables": dict(special_tokens)}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", __name__],
            input=json.dumps(asked),
            capture_output=True,
            encoding="utf-8",
            timeout=2 * SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateError("the chat template takes too long.") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() if done.returncode == 1 else []
        reason = lines[-1][:300] if lines else "it exceeds its limits of time or memory"
        raise TemplateError(f"the chat template cannot render these messages ({reason}).")
    return done.stdout


def _main() -> None:
    """Render the template on stdin to stdout."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    asked = json.load(sys.stdin)
    sandbox = import_extra("jinja2.sandbox", "A chat template")

    def refuse(message: str) -> None:
        raise ValueError(message)

    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    variables: dict[str, Any] = asked["variables"]
    try:
        text = environment.from_string(asked["template"]).render(
            messages=asked["messages"], add_generation_prompt=True, **variables
        )
    except Exception as error:  # a template of a stranger raises anything
        sys.exit(str(error) or type(error).__name__)
    if len(text) > MAX_PROMPT_CHARACTERS:
        sys.exit("the prompt is too long")
    sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
    sys.stdout.write(text)


if __name__ == "__main__":
    _main()

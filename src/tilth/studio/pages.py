"""The pages of the studio and the JSON that they read. A page holds no state of the server."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tilth import studio
from tilth.errors import import_extra
from tilth.generation.language_model import LanguageModel
from tilth.generation.sampling import Sampling
from tilth.schema import Length
from tilth.studio import inspecting, merging
from tilth.studio.completions import Completions, read_asked
from tilth.studio.errors import RequestError, invalid, unreadable
from tilth.studio.folder import Folder
from tilth.studio.runs import AskedLab, Compared, Norms, Runs, Watch
from tilth.studio.security import LOGIN
from tilth.studio.timeline import Moment, Sides, Step, Steps, Timeline, compare_readings
from tilth.studio.turns import Turns
from tilth.tokenizer import Tokenizer

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

STATIC = files("tilth.studio") / "static"
DOCS = [Path(root) / "docs" for root in studio.__path__]
"""Folders with the docs; an editable install has two roots."""
MAX_WAITING = 64
"""Computations that wait for their turn; a page asks for few at a time."""
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {"index.html": "/", "login.html": LOGIN}
PAGES_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline script or style, and no request to another server."""

Text = Annotated[str, Length(at_most=inspecting.MAX_CHARACTERS)]


@dataclass(frozen=True)
class _Asked:
    """A body of the page API; each page reads its own fields."""

    model: str
    step: Step | None = None
    """The step of a checkpoint of a run; default: the best one."""
    other: str = ""
    text: Text = ""
    ids: Annotated[list[int], Length(at_most=1 << 17)] = field(default_factory=list)
    token: int | None = None
    without: Annotated[list[str], Length(at_most=10_000)] = field(default_factory=list)
    sampling: Sampling = field(default_factory=Sampling)


def static_files() -> dict[str, Handler]:
    """Return a handler for each file of the pages, by path; other paths do not exist."""

    def handler(read_content: Callable[[], bytes], kind: str) -> Handler:
        # A browser keeps a file, compiled too, and asks whether it has changed.
        @cache
        def content() -> tuple[bytes, str]:
            found = read_content()
            return found, f'"{hashlib.sha256(found).hexdigest()[:32]}"'

        async def serve(request: Request) -> Response:
            found, tag = await run_in_threadpool(content)
            headers = {"Content-Security-Policy": PAGES_POLICY, "Cache-Control": "no-cache"}
            headers["ETag"] = tag
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers=headers)
            return Response(found, headers=headers, media_type=kind)

        return serve

    found = {"/static/plotly.js": handler(_plotly, TYPES["js"])}
    for file in STATIC.iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = PAGES.get(file.name, f"/static/{file.name}")
            found[path] = handler(file.read_bytes, kind)
    for folder in DOCS:
        for page in folder.glob("*.md"):
            found[f"/docs/{page.name}"] = handler(page.read_bytes, "text/plain")
    return found


def _plotly() -> bytes:
    """Return the script of plotly, which its package has.

    Its library of maps adds a <style>, which the policy refuses with a message on the console,
    unless there is an element with a certain id: a line before the script adds one.
    """
    script: str = import_extra("plotly.offline", "The studio").get_plotlyjs()
    ids = re.findall(r'getElementById\("([0-9a-f]{64})"\)', script)
    stand_in = (
        'document.head.append(Object.assign(document.createElement("template"), {{id: "{}"}}));'
    )
    return "\n".join([*map(stand_in.format, ids), script]).encode()


@dataclass
class Pages:
    """The handlers of the page API; computations of models and tokenizers take turns."""

    completions: Completions
    folder: Folder
    runs: Runs
    timeline: Timeline
    _turns: Turns = field(default_factory=lambda: Turns(MAX_WAITING))

    def views(self) -> dict[str, Handler]:
        """Return the handlers by path that take GET."""
        return {"/api/folder": self._list, "/api/runs": self.runs.show_table}

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by path that take POST."""
        return {
            "/api/model": self._of_model(
                lambda model, asked: inspecting.describe(asked.model, model)
            ),
            "/api/tokens": self._of_tokenizer(
                lambda tokenizer, asked: inspecting.tokens_of(tokenizer, asked.text)
            ),
            "/api/merges": self._of_tokenizer(
                lambda tokenizer, asked: {"nodes": inspecting.merge_tree(tokenizer, asked.text)}
            ),
            "/api/film": self._of_tokenizer(
                lambda tokenizer, asked: merging.film(tokenizer, asked.text)
            ),
            "/api/compare": self._compare,
            "/api/read": self._of_model(
                lambda model, asked: inspecting.read_text(model, asked.text)
            ),
            "/api/read/compare": self._compare_readings,
            "/api/steps": self._of_runs(Steps, self.timeline.steps),
            "/api/time": self._look_back,
            "/api/next": self._of_model(
                lambda model, asked: inspecting.next_tokens(
                    model, asked.ids, asked.sampling, asked.token
                )
            ),
            "/api/encode": self._of_model(
                lambda model, asked: {"ids": model.prompt_ids(asked.text)}
            ),
            "/api/inside": self._of_model(
                lambda model, asked: inspecting.look_inside(model, asked.text, asked.without)
            ),
            "/api/runs/watch": self._watch,
            "/api/runs/norms": self._of_runs(Norms, self.runs.norms),
            "/api/lab": self._of_runs(AskedLab, self.runs.lab),
            "/api/runs/compare": self._of_runs(Compared, self.runs.compare),
        }

    async def _list(self, _request: Request) -> Response:
        """Answer which entries the folder has."""

        def listed() -> dict[str, Any]:
            models = self.folder.models()
            entries = [
                {
                    "id": entry.id,
                    "kind": entry.kind,
                    "is_model": entry.id in models and entry.kind in ("run", "model"),
                    "has_tokenizer": entry.has_tokenizer,
                }
                for entry in self.folder.entries()
            ]
            name, is_truncated = self.folder.name, self.folder.is_truncated
            return {"name": name, "entries": entries, "is_truncated": is_truncated}

        return JSONResponse(await run_in_threadpool(listed))

    async def _watch(self, request: Request) -> Response:
        return await self.runs.watch(await read_asked(request, Watch))

    def _of_runs(self, kind: type[T], compute: Callable[[T], dict[str, Any]]) -> Handler:
        async def handler(request: Request) -> Response:
            asked = await read_asked(request, kind)
            return JSONResponse(await run_in_threadpool(compute, asked))

        return handler

    def _of_model(self, compute: Callable[[LanguageModel, _Asked], dict[str, Any]]) -> Handler:
        async def handler(request: Request) -> Response:
            asked = await read_asked(request, _Asked)
            load = await self.model(asked.model, asked.step)
            return await self.computed(request, lambda: compute(load(), asked))

        return handler

    async def model(self, model_id: str, step: int | None) -> Callable[[], LanguageModel]:
        """Return a function that returns a model: the shared one, or a checkpoint of a run."""
        if step is not None:
            return partial(self.timeline.load, model_id, step)
        _, engine = await self.completions.engine(model_id)
        return lambda: engine.model

    async def _compare_readings(self, request: Request) -> Response:
        """Answer how two models read a text."""
        asked = await read_asked(request, Sides)
        sides = (asked.model, asked.step), (asked.other, asked.other_step)
        first, second = [await self.model(*side) for side in sides]
        return await self.computed(request, lambda: compare_readings(first(), second(), asked.text))

    async def _look_back(self, request: Request) -> Response:
        """Answer what a checkpoint makes of a text and of a prompt."""
        asked = await read_asked(request, Moment)
        return await self.computed(request, self.timeline.moment, asked)

    def _of_tokenizer(self, compute: Callable[[Tokenizer, _Asked], dict[str, Any]]) -> Handler:
        async def handler(request: Request) -> Response:
            asked = await read_asked(request, _Asked)
            tokenizer = await self.tokenizer(asked.model)
            return await self.computed(request, compute, tokenizer, asked)

        return handler

    async def _compare(self, request: Request) -> Response:
        """Answer how two tokenizers split a text."""
        asked = await read_asked(request, _Asked)
        both = [await self.tokenizer(entry_id) for entry_id in (asked.model, asked.other)]
        return await self.computed(request, merging.compare, *both, asked.text)

    async def tokenizer(self, entry_id: str) -> Tokenizer:
        """Return the tokenizer of an entry of the folder."""
        try:
            return await run_in_threadpool(self.folder.tokenizer, entry_id)
        except KeyError:
            raise RequestError(404, "the folder has no tokenizer of this name.") from None
        except (OSError, ValueError, MemoryError) as error:
            raise unreadable(f"the tokenizer of {entry_id} cannot be read", error) from error

    async def computed(
        self, request: Request, compute: Callable[..., dict[str, Any]], *values: object
    ) -> Response:
        """Answer what a computation returns, in its turn."""
        with invalid():
            found = await self._turns.run(request, compute, *values)
        return JSONResponse(found)

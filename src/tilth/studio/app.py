"""The HTTP application: routes, errors and counters."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tilth.studio.completions import Completions, Limits
from tilth.studio.costs import Costs
from tilth.studio.errors import RequestError
from tilth.studio.folder import Folder
from tilth.studio.login import login
from tilth.studio.metrics import Metrics
from tilth.studio.models import Models
from tilth.studio.openai import error_body
from tilth.studio.pages import Pages, static_files
from tilth.studio.runs import Runs
from tilth.studio.security import LOGIN, LOOPBACK, Guard
from tilth.studio.timeline import Timeline

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def make_app(
    models: Models,
    *,
    hosts: Iterable[str] = LOOPBACK,
    token: str | None = None,
    limits: Limits | None = None,
    folder: Folder | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Starlette:
    """Return the application that serves models.

    Args:
        models: The models; they are closed when the application stops.
        hosts: Host names under which the server is reached.
        token: The required token; default: none.
        limits: Limits of a request.
        folder: The folder that the pages of the studio show; default: the API alone.
        is_stopping: Whether the server is about to stop: streams without an end stop then.

    """
    metrics = Metrics()
    handlers = Completions(models, metrics, limits or Limits())

    async def list_models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(models, i) for i in models.ids]})

    async def get_model(request: Request) -> Response:
        model_id = request.path_params["model_id"]
        if model_id not in models.ids:
            raise RequestError(404, "unknown model.", code="model_not_found")
        return JSONResponse(_model(models, model_id))

    async def refuse_embeddings(_request: Request) -> Response:
        raise RequestError(404, "embeddings are not available; these models generate text.")

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(_request: Request) -> Response:
        text = metrics.text(models.loads())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> Any:  # noqa: ANN401
        try:
            yield
        finally:
            models.close()

    def counted(path: str, handler: Handler, method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                response = await handler(request)
            except RequestError as error:
                response = _refusal(error)
            except Exception:
                log.exception("a request failed")
                response = _refusal(RequestError(500, "internal error; see the server's log."))
            metrics.count(path, response.status_code)
            return response

        return Route(path, endpoint, methods=[method])

    pages: list[Route] = []
    if folder is not None:
        runs = Runs(folder, is_stopping)
        read = Pages(handlers, folder, runs, Timeline(folder, models, runs))
        shown = {**read.views(), **static_files()}
        asked = {**read.handlers(), **Costs(folder).handlers()}
        if token is None:
            del shown[LOGIN]
        else:
            asked[LOGIN] = login(token)
        pages += [counted(path, handler, "POST") for path, handler in asked.items()]
        pages += [counted(path, handler, "GET") for path, handler in shown.items()]

    routes = [
        *pages,
        counted("/v1/models", list_models, "GET"),
        counted("/v1/models/{model_id:path}", get_model, "GET"),
        counted("/v1/completions", handlers.complete, "POST"),
        counted("/v1/chat/completions", handlers.chat, "POST"),
        counted("/v1/embeddings", refuse_embeddings, "POST"),
        counted("/metrics", show_metrics, "GET"),
        counted("/health", health, "GET"),
    ]
    metrics.paths = frozenset(route.path for route in routes)
    guard = Middleware(
        Guard,
        hosts=tuple(hosts),
        token=token,
        has_login=folder is not None,
        refused=metrics.count,
    )
    app = Starlette(
        routes=routes,
        middleware=[guard],
        exception_handlers={HTTPException: partial(_unknown, metrics)},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a path that is not there is an error
    return app


def _model(models: Models, model_id: str) -> dict[str, Any]:
    created = models.modified(model_id)
    return {"id": model_id, "object": "model", "created": created, "owned_by": "tilth"}


def _refusal(error: RequestError) -> Response:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = error_body(error.message, kind, error.code)
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return Response(body, error.status, headers, media_type="application/json")


async def _unknown(metrics: Metrics, request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    metrics.count(request.url.path, status)
    sentences = {404: "there is no such path.", 405: "this path does not take this method."}
    return _refusal(RequestError(status, sentences.get(status, "the request is invalid.")))

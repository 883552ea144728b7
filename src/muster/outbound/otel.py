"""Spans of OpenTelemetry, by the extra `musterd[otel]`: imported here alone, and only where they are wanted."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from muster import __version__
from muster.hosts.trace import Said, Tracer
from muster.model.errors import BadConfig
from muster.ports.store import Reads

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

LOOK_S = 0.5
PAGE_EVENTS = 500


def exporter() -> SpanExporter:
    """As OTEL_TRACES_EXPORTER says: `otlp` over HTTP, which is usual, or `console`.  Raises BadConfig."""
    kind = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    try:
        if kind == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\n")
        if kind == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            otlp: SpanExporter = OTLPSpanExporter()
            return otlp
    except ImportError as error:
        raise _wrong(
            f"spans need a package that is not here: {error}", "pip install 'musterd[otel]'"
        ) from None
    raise _wrong(f"OTEL_TRACES_EXPORTER is {kind!r}", "otlp or console")


def _wrong(problem: str, hint: str) -> BadConfig:
    error = BadConfig(f"trace.spans: {problem}; nothing was started", hint)
    error.key = "trace.spans"
    return error


class OtelSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def say(self, **said: Said) -> None:
        self._span.set_attributes(_named(said))


class OtelTracer:
    """Implements hosts.trace.Tracer."""

    def __init__(self, process: str, send: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say stands above that.
        usual = {"service.name": f"muster-{process}", "service.version": __version__}
        resource = Resource(usual).merge(Resource.create()) if "OTEL_SERVICE_NAME" in os.environ else None
        self._provider = TracerProvider(resource=resource or Resource.create(usual), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(send))
        self._tracer = self._provider.get_tracer("muster", __version__)

    @contextmanager
    def span(self, name: str, *, task_id: int = 0, parent: str = "", **said: Said) -> Iterator[OtelSpan]:
        context = _trace_of(task_id) if task_id else _trace_of_others(parent)
        with self._tracer.start_as_current_span(name, context, attributes=_named(said)) as span:
            yield OtelSpan(span)

    def mark(self, name: str, at_ms: int, *, task_id: int, **said: Said) -> None:
        at_ns = at_ms * 1_000_000
        span = self._tracer.start_span(name, _trace_of(task_id), attributes=_named(said), start_time=at_ns)
        span.end(at_ns)

    def close(self) -> None:
        self._provider.shutdown()


def _named(said: dict[str, Said]) -> dict[str, Said]:
    return {name.replace("__", "."): value for name, value in said.items()}


def _trace_of(task_id: int) -> Any:
    """One for each task: owner and workers know it without telling each other."""
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    number = hashlib.blake2b(str(task_id).encode(), digest_size=24).digest()
    root = SpanContext(
        trace_id=int.from_bytes(number[:16], "big"),
        span_id=int.from_bytes(number[16:], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(root))


def _trace_of_others(parent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())


class Moves:
    """A mark for each move of a task from one status to another, as its events tell."""

    def __init__(self, reads: Reads, tracer: Tracer) -> None:
        self._reads = reads
        self._tracer = tracer
        self._after = 0

    async def run(self) -> None:
        self._after = await self._reads.last_event_id()
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self.look()
        finally:
            await self.look()

    async def look(self) -> None:
        while page := await self._reads.events(after_id=self._after, task_id=None, limit=PAGE_EVENTS):
            self._after = page[-1].id
            for event in page:
                if event.task_id and event.new_status != event.previous_status:
                    self._tracer.mark(
                        f"task {event.new_status}",
                        event.at_ms,
                        task_id=event.task_id,
                        muster__event=event.event,
                        muster__task__from=event.previous_status or "",
                        muster__attempt=event.epoch,
                        muster__actor=event.actor,
                    )

"""Events as they happen: one live line per node on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.plan.events import Event

Sink = Callable[["Event"], None]


@contextmanager
def shown(*, quiet: bool) -> Iterator[Sink]:
    """A sink for events. ``quiet`` (for ``--json``) shows nothing; everything else goes to standard error."""
    if quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _live() as sink:
            yield sink
    else:
        yield _plain()


def _plain() -> Sink:
    """One line an event, with seconds since the start; the same line twice in a row is said once."""
    began = time.monotonic()
    guard = threading.Lock()
    last: dict[str, str] = {}

    def sink(event: Event) -> None:
        line = words(event)
        with guard:
            if line and last.get(event.node) != line:
                last[event.node] = line
                print(f"[{time.monotonic() - began:6.1f}s] {line}", file=sys.stderr, flush=True)

    return sink


def words(event: Event) -> str:
    """An event as a line; empty for the ones that say nothing new to a reader of lines."""
    node = f"{event.node}: " if event.node else ""
    match event.kind:
        case "phase-started":
            return event.phase
        case "action-progress":
            return f"  {node}{event.says}"
        case "action-failed" | "undo-failed":
            return f"  {node}FAILED {event.says}"
        case "action-ended":
            return f"  {node}ended: {event.says}"
        case "undo-started":
            return f"undoing: {event.phase}"
        case "action-done":
            return f"  {node}{event.says}" if event.says else ""
        case "note" | "generation-ready" | "generation-stopped":
            return f"{node}{event.says}"
        case _:
            return ""


@contextmanager
def _live() -> Iterator[Sink]:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=True)
    rows: dict[str, str] = {}
    phase, began = "", time.monotonic()
    guard = threading.Lock()
    spinner = Spinner("dots")

    def table() -> Table:
        grid = Table.grid(padding=(0, 2))
        spinner.update(text=Text(f"{phase}  {time.monotonic() - began:.0f} s", style="bold"))
        grid.add_row(spinner)
        for node, says in sorted(rows.items()):
            grid.add_row(Text(f"    {node:<12} {says}", overflow="ellipsis", no_wrap=True))
        return grid

    with Live(get_renderable=table, console=console, refresh_per_second=8, transient=True) as live:

        def sink(event: Event) -> None:
            nonlocal phase, began
            with guard:
                if event.kind in {"phase-started", "undo-started"}:
                    rows.clear()
                    phase, began = words(event), time.monotonic()
                elif event.kind == "phase-done":
                    taken = time.monotonic() - began
                    live.console.print(Text.assemble(("✓ ", "green"), f"{event.phase} ({taken:.1f} s)"))
                elif event.kind in {"action-failed", "undo-failed"}:
                    live.console.print(Text.assemble(("✗ ", "red"), words(event).strip()))
                elif event.node:
                    rows[event.node] = event.says
                elif line := words(event):
                    live.console.print(Text(line))

        yield sink

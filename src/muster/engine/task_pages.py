"""Pages of lists of tasks, whose texts may be of any length."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from muster.engine.queries import Queries
from muster.model.numbers import PAGE_BYTES
from muster.model.views import TaskFilter, TaskView

FIRST_ROWS = 20


async def page_of(
    queries: Queries, selection: TaskFilter, bytes_max: int = PAGE_BYTES
) -> tuple[list[TaskView], bytes]:
    """The tasks, and the same as JSON: it ends with the one that makes it so long.

    The first few tell how many more are read at one time: few texts are read to be left out.
    """
    found, parts, size, rows = list[TaskView](), list[bytes](), 0, FIRST_ROWS
    while len(found) < selection.limit and size < bytes_max:
        after = found[-1].id if found else selection.after_id
        asked = min(rows, selection.limit - len(found))
        views = await queries.tasks(replace(selection, after_id=after, limit=asked))
        for view in views:
            found.append(view)
            parts.append(msgspec.json.encode(view))
            size += len(parts[-1]) + 1
            if size >= bytes_max:
                break
        if len(views) < asked:
            break
        rows = max(1, (bytes_max - size) * len(found) // size)
    return found, b"[" + b",".join(parts) + b"]"

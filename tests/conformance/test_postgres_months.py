"""Events of months that are over leave with their partition, once all of them were pruned (S7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from store_rows import NOW, Subject, make_event, make_task, new_task, writes

from muster.engine.audit import Auditor
from muster.model.answers import AuditReport
from muster.model.numbers import first_id
from muster.model.rows import DEFAULT_WORKSPACE, Workspace
from muster.model.seals import GENESIS, Seal, Signer
from muster.stores.postgres.store import PostgresStore
from postgres_databases import at, run_sql

SIGNER = Signer(b"k" * 32)
ELSEWHERE = 70


def month_begin(ago: int) -> datetime:
    """Of the month that was so many months ago."""
    begin = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(ago):
        begin = (begin - timedelta(days=1)).replace(day=1)
    return begin


def name(ago: int) -> str:
    return f"events_{month_begin(ago):%Y_%m}"


def wall_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def task_of(ago: int, number: int = 0) -> int:
    """A task that was added in the middle of that month."""
    return first_id(wall_ms(month_begin(ago) + timedelta(days=14))) + number


@pytest.fixture
def database(postgres: str, postgres_store: str) -> str:
    """As its superuser sees it."""
    return at(postgres, postgres_store.rpartition("/")[2])


@pytest.fixture
def months(postgres_store: str, database: str) -> Iterator[Subject]:
    """A store that is half a year old."""
    since = f"{month_begin(6):%Y-%m-%d}"
    with asyncio.Runner() as runner:
        store = runner.run(PostgresStore.open(postgres_store))
        run_sql(
            database,
            "DROP TABLE muster.events_before",
            "DROP TABLE muster.attempts_before",
            "SET ROLE muster_test",
            f"SELECT muster.make_partitions(3, '{since}')",
        )
        yield Subject(
            store, runner, sql=lambda sql: run_sql(database, sql), integrity_error=asyncpg.PostgresError
        )
        runner.run(store.aclose())


def add(months: Subject, *task_ids: int, events: int = 1) -> None:
    """Tasks that will have had so many events, with the first one."""
    months.add(*((new_task(task_id)[0], make_task(task_id, event_seq=events)) for task_id in task_ids))
    happen(months, *task_ids)


def happen(months: Subject, *task_ids: int, seq: int = 1) -> None:
    months.write(events=[make_event(task_id, seq) for task_id in task_ids])


def seal(months: Subject, made: datetime) -> Seal:
    """All that is not sealed yet."""
    last = months.tx("last_seal")
    after_id, head = (last.to_id, last.head) if last else (0, GENESIS)
    made_ms = wall_ms(made)
    sealed = SIGNER.seal(months.read("numbered_events", after_id, None, 100), head, made_ms)
    months.tx("add_seal", sealed)
    return sealed


def prune(months: Subject, sealed: Seal) -> int:
    gone: int = months.tx("prune_events", sealed.to_id, 9, SIGNER.prune_proof(sealed, 9))
    return gone


def upkeep(months: Subject) -> None:
    store = months.store
    assert isinstance(store, PostgresStore)
    store._upkeep_due_s = 0.0
    months.ask(store.look())


def partitions(database: str) -> set[str]:
    rows = run_sql(
        database,
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'muster.events'::regclass",
    )
    return {row[0] for row in rows}


def audited(months: Subject) -> AuditReport:
    report: AuditReport = months.ask(Auditor(months.store.reads, SIGNER, list, months.workspace_id).verify())
    return report


def there(database: str) -> set[int]:
    return {row[0] for row in run_sql(database, "SELECT task_id FROM muster.events")}


@pytest.mark.promise("S7")
def test_a_month_whose_events_were_all_pruned_leaves_with_its_partition(
    months: Subject, database: str
) -> None:
    months.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    old, next_one, present = task_of(5), task_of(4), task_of(0)
    add(months, old, task_of(5, 1))
    first = seal(months, month_begin(4))
    other = months.of(ELSEWHERE)
    add(other, task_of(5, 2))
    others = seal(other, month_begin(4))
    add(months, next_one)
    second = seal(months, month_begin(3))
    add(months, present)
    last = seal(months, month_begin(0))

    assert prune(months, first) == 0, "they go with their month"
    upkeep(months)
    assert name(5) in partitions(database), "the other workspace's event is kept"
    assert there(database) == {old, task_of(5, 1), task_of(5, 2), next_one, present}
    assert (audited(months).whole, audited(other).whole) == (True, True)

    prune(other, others)
    upkeep(months)
    assert name(5) not in partitions(database)
    assert {name(4), name(0), "events_before", "events_later"} <= partitions(database)
    assert there(database) == {next_one, present}
    report = audited(months)
    assert (report.whole, report.pruned, report.sealed, report.problems) == (True, 2, 2, ())
    assert audited(other).pruned == 1 and audited(other).whole

    prune(months, second)
    upkeep(months)
    assert there(database) == {present}
    assert prune(months, last) == 1, "of the month that goes on each goes at once"
    assert audited(months).whole
    assert run_sql(database, "SELECT relforcerowsecurity FROM pg_class WHERE relname = 'seals'") == [(True,)]


@pytest.mark.promise("S7")
def test_what_is_not_pruned_is_dropped_by_nobody(months: Subject, database: str, postgres_store: str) -> None:
    add(months, task_of(5), task_of(0))
    as_engine = ("SET ROLE muster_engine", "SET search_path = muster")
    for month in (name(5), name(0), "tasks", "events_before", "no_such_table"):
        run_sql(postgres_store, *as_engine, f"SELECT drop_month('{month}')")
    assert there(database) == {task_of(5), task_of(0)}
    prune(months, seal(months, month_begin(0)))
    run_sql(postgres_store, *as_engine, f"SELECT drop_month('{name(0)}')")
    assert name(0) in partitions(database), "others of this month are still to come"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        run_sql(postgres_store, "SET ROLE muster_query", f"SELECT muster.drop_month('{name(5)}')")


@pytest.mark.promise("S7")
def test_beside_a_task_that_lives_on_the_others_events_go_row_by_row(months: Subject, database: str) -> None:
    living = task_of(6)
    add(months, living, events=3)
    add(months, task_of(6, 1))
    first = seal(months, month_begin(5))
    happen(months, living, seq=2)
    second = seal(months, month_begin(4) + timedelta(days=1))
    happen(months, living, seq=3)
    prune(months, first)
    upkeep(months)
    assert len(run_sql(database, "SELECT FROM muster.events")) == 4, "the month may still go as a whole"
    prune(months, second)
    upkeep(months)
    assert [row[0] for row in run_sql(database, "SELECT seq FROM muster.events")] == [3]
    assert name(6) in partitions(database)
    assert audited(months).pruned == 3


@pytest.mark.promise("S7")
def test_nobody_waits_for_long_while_somebody_reads_the_events(months: Subject, database: str) -> None:
    """As a backup does.  Writers go on, and the month goes as soon as that is over."""

    async def work() -> None:
        reader = await asyncpg.connect(database)
        try:
            await reader.execute("BEGIN; SELECT FROM muster.events LIMIT 1")
            store._upkeep_due_s = 0.0
            written = 1
            looking = asyncio.create_task(store.look())
            while not looking.done():
                written += 1
                asked = writes(events=[make_event(task_of(0), written)])
                await store.transact(lambda tx, rows=asked: tx.of(DEFAULT_WORKSPACE).write(rows, NOW))
            await looking
            assert written > 1 and store._upkeep_due_s < asyncio.get_running_loop().time() + 60
            assert len(await reader.fetch(f"SELECT FROM muster.{name(5)}")) == 1
        finally:
            await reader.close()

    store = months.store
    assert isinstance(store, PostgresStore)
    add(months, task_of(5))
    prune(months, seal(months, month_begin(4)))
    add(months, task_of(0))
    months.ask(work())
    assert name(5) in partitions(database)
    upkeep(months)
    assert name(5) not in partitions(database)

"""`muster db`: the store as a whole: back it up, check it, migrate it, say that it was restored, move it."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any

from muster.cli.context import actor, project_of
from muster.cli.copied import adopted
from muster.cli.fields import answer
from muster.cli.output import clean, error_body, print_json, shell_word
from muster.client.http import answers
from muster.config.project import Project
from muster.config.values import STORES, has_password
from muster.model.errors import BadInput, MusterError

BACKUP_S = 3600.0
"""How long a backup may take."""
EXIT_FINDINGS = 1


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    backup = verbs.add_parser(
        "backup", act=_backup, help="copy the store as of now, also while the crew works"
    )
    backup.add_argument("file", metavar="FILE", nargs="?", help="default: .muster/backups/DATE.db")
    backup.add_argument("--force", action="store_true", help="over a file that is there already")
    check = verbs.add_parser("check", act=_check, help="look for damage (exit code 1: there is some)")
    check.add_argument("file", metavar="FILE", nargs="?", help="a backup; default: the project's store")
    check.add_argument("--quick", action="store_true", help="without comparing indexes with their tables")
    check.add_argument(
        "--resume", action="store_true", help="where it is sound: write it anew, and end a halt after a fault"
    )
    migrate = verbs.add_parser(
        "migrate", act=_migrate, help="bring the schema up to date, as each start of the crew does"
    )
    migrate.add_argument("--dry-run", action="store_true", help="only say what would be done")
    verbs.add_parser(
        "adopt",
        act=_adopt,
        help="this folder is a copy of another one, of a project or of workers: make it one of its own",
    )
    copy = verbs.add_parser(
        "copy",
        act=_copy,
        help="take the project's store to an empty PostgreSQL database, which servers share",
    )
    copy.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help="postgresql://USER@HOST/DATABASE; the password comes from [serve] store_file, MUSTER_SERVE_STORE, "
        "PGPASSWORD or ~/.pgpass (default: as these say)",
    )
    way = copy.add_mutually_exclusive_group()
    way.add_argument(
        "--clear", action="store_true", help="remove what a copy that was cut off has left there, then copy"
    )
    way.add_argument(
        "--undo", action="store_true", help="go on with the file, while no server has begun with the copy"
    )
    verbs.add_parser(
        "restored",
        act=_restored,
        help="the store, a file or a database, is an older copy now: go on from there",
    )


def _backup(args: argparse.Namespace) -> int:
    from muster.app.key import vault_of

    project = project_of(args)
    if project.shares_store:
        _refuse_down(project)
    else:
        _require_store(project)
    if args.file is not None:
        target = _path(args.file)
    else:
        folder = project.state_dir / "backups"
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.{'dump' if project.shares_store else 'db'}"
    made = _back_up(project, target, force=args.force)
    opens = vault_of(project).place()
    elsewhere = "keep a copy of it where the backups are not"
    return answer(
        args,
        {**made, "keys": [key for key in (str(project.key_file), opens) if key]},
        f"backed up  {clean(made['path'])}  {_size(made['bytes'])}, {made['tasks']} tasks",
        f"key        {clean(str(project.key_file))}  proves the audit; keep a copy of it beside the backups",
        *([f"vault key  {clean(opens)}  opens secrets, nothing else does; {elsewhere}"] if opens else []),
    )


def _refuse_down(project: Project) -> None:
    """Raises Unavailable: only its server reaches a store that is shared."""
    if not answers(project.socket):
        from muster.config.identity import refuse_shared

        refuse_shared(project)


def _back_up(project: Project, target: Path, *, force: bool) -> dict[str, Any]:
    if answers(project.socket):
        from muster.client.api import Api
        from muster.client.http import Connection

        body = {"path": str(target), "force": force}
        with contextlib.closing(Api(Connection(project.socket))) as api:
            made: dict[str, Any] = api.post("/api/v1/db/backup", body, wait_s=BACKUP_S)
        return made
    from muster.app.store_file import back_up

    if (halted := _halted(project.store)) is not None:
        raise halted
    report = back_up(project.store, target, force=force)
    return {"path": str(target), "bytes": report.bytes, "tasks": report.tasks, "schema": report.schema}


def _check(args: argparse.Namespace) -> int:
    from muster.app.store_file import examine

    if args.resume:
        if args.file is not None or args.quick:
            raise BadInput(
                "--resume is for the project's own store, wholly checked", "muster db check --resume"
            )
        from muster.app.restore import resume

        project = project_of(args)
        return _show(args, resume(project), project)
    if args.file is not None:
        return _show(args, examine(_path(args.file), quick=args.quick), None)
    project = project_of(args)
    _require_store(project)
    return _show(args, examine(project.store, quick=args.quick), project)


def _show(args: argparse.Namespace, report: Any, own: Project | None) -> int:
    """`own`: whose store it is; None for a backup."""
    findings = list(report.findings)
    halted = _halted(report.path) if own else None
    bad = bool(findings) or halted is not None
    if args.json:
        told = error_body(halted) if halted else None
        print_json({**report._asdict(), "path": str(report.path), "ok": not bad, "halted": told})
        return EXIT_FINDINGS if bad else 0
    for finding in findings:
        print(f"broken  {clean(finding)}")
    other = (
        f" (muster db migrate: {report.newest})" if report.schema != report.newest and not findings else ""
    )
    counts = f"schema {report.schema}{other}, {report.tasks} tasks, {_size(report.bytes)}"
    word = "BROKEN" if findings else "HALTED" if halted is not None else "sound"
    print(f"{word}: {clean(str(report.path))}, {counts}")
    if halted is not None:
        print(f"   why  {clean(halted.message)}\n  hint  {clean(halted.hint)}")
    elif findings and own:
        from muster.app.store_file import restore_hint

        print(f"  hint  {restore_hint(report.path)}")
    elif own and not report.tasks:
        from muster.app.salvage import former_work

        if former := former_work(own):
            print(f"  note  {clean(former)}")
    return EXIT_FINDINGS if bad else 0


def _require_store(project: Project) -> None:
    from muster.app.key import require_store

    require_store(project)


def _halted(store: Path) -> MusterError | None:
    from muster.app.store_file import halt_of

    halt = halt_of(store)
    return halt.error(store) if halt is not None else None


def _migrate(args: argparse.Namespace) -> int:
    from muster.app.restore import migrate

    done = migrate(project_of(args), dry_run=args.dry_run)
    told = f"{'would go' if args.dry_run else 'went'} from schema {done.before} to {done.after}"
    if done.before == done.after:
        told = f"schema {done.after} already: nothing to do"
    return answer(args, {"from": done.before, "to": done.after, "dryRun": args.dry_run}, told)


def _restored(args: argparse.Namespace) -> int:
    project = project_of(args)
    if shares_store(project):
        import asyncio

        from muster.app.restore_shared import restored as restored_shared
        from muster.app.settings import load_config

        done = asyncio.run(restored_shared(project, load_config(project.root).serve, actor()))
        next_ = "its servers that are up go on by themselves, others with muster serve"
    else:
        from muster.app.restore import restored

        done = restored(project, actor())
        next_ = "muster up, or muster run PLAN.md"
    return answer(
        args,
        {"base": done.base, "missing": done.missing, "closed": done.closed},
        f"restored: attempts are numbered above {done.base} from now on, older ones change nothing",
        *([f"  lost  {clean(done.missing)}"] if done.missing else []),
        *_closed(done),
        f"  next  {next_}; what was done since the copy is done again",
    )


def shares_store(project: Project) -> bool:
    """A server of this folder has shared its store, or is to: `db restored` may come before its first start."""
    if project.shares_store or project.store.exists():
        return project.shares_store
    from muster.app.settings import load_config

    return load_config(project.root).serve.shared


def _adopt(args: argparse.Namespace) -> int:
    from muster.app.restore import restored

    project = project_of(args)
    if not project.has_store:
        return _adopt_host(args, project)
    done = restored(project, actor(), adopt=True)
    next_ = "  next  muster up, or muster run PLAN.md; the tasks that are left are done here as well"
    told = {"base": done.base, "lost": done.lost, "closed": done.closed}
    return answer(args, told, f"adopted: {adopted(project, done)}", *_closed(done), next_)


def _adopt_host(args: argparse.Namespace, project: Project) -> int:
    from muster.app.remote_crew import adopt_host

    aside = adopt_host(project)
    kept = f"  kept  {aside}: what the original's workers had begun; nobody goes on with it here"
    next_ = f"  next  muster -C {shell_word(project.folder)} worker start --server URL"
    lines = [
        f"adopted: {clean(project.folder)} is a folder of its own",
        *([clean(kept)] if aside else []),
        next_,
    ]
    return answer(args, {"kept": str(aside or "")}, *lines)


def _closed(done: Any) -> list[str]:
    return [f"closed  {clean(done.closed)}"] if done.closed else []


def _copy(args: argparse.Namespace) -> int:
    from muster.app.db_copy import address_of, copy_store, moved_to, take_back
    from muster.app.salvage import push_of_plans
    from muster.app.shared_store import copy_keys

    project = project_of(args)
    url = _database(args.url, project) or (moved_to(project) if args.undo else "")
    if not url:
        raise BadInput(
            "no database is named; nothing was copied", "muster db copy postgresql://USER@HOST/DATABASE"
        )
    shown = address_of(url)
    if args.undo:
        undone = take_back(project, url)
        told = f"undone   {project.store} is what counts again; no server takes up the copy in {shown}"
        next_ = "muster up"
        if undone.lost:
            told = f"lost     {shown} has no tables of Muster any more, and what was done there is lost"
            next_ = (
                "muster db restored, which raises the base of all epochs; or put that database back instead"
            )
        return answer(args, {"undone": shown, "lost": undone.lost}, told, f"  next   {next_}")

    def say(table: str, rows: int) -> None:
        if not args.json:
            print(f"copied   {rows:>11,} {table}", flush=True)

    done = copy_store(project, url, clear=args.clear, actor=actor(), say=say)
    rows = sum(done.rows.values())
    push = []
    if command := push_of_plans(project):
        push = ["  next   what its plans have made, into the repository that is the servers' git.remote:"]
        push.append(f"         {command}")
    return answer(
        args,
        {"to": shown, "rows": done.rows, "files": done.files, "finished": done.finished},
        f"moved    the tasks go on in {shown}" + ("" if done.finished else f"; {rows:,} rows, compared"),
        f"kept     {project.store} as it is, to be read",
        *push,
        "  next   a folder for each server, with the keys of this one:",
        f"         {copy_keys(project)}",
        f"         cd SERVER && muster serve --store {shell_word(shown)} --listen 127.0.0.1:7420",
    )


def _database(named: str | None, project: Project) -> str:
    """With its password; empty where neither the command nor the settings say."""
    from muster.app.settings import load_config
    from muster.app.shared_store import require_driver, store_url
    from muster.hosts.addresses import database_flaw

    if named is not None:
        if not named.startswith(STORES):
            raise BadInput(
                "URL is no address of a database; nothing was copied", f"{STORES[0]}USER@HOST/DATABASE"
            )
        if has_password(named):
            raise BadInput(
                "URL holds a password, which everybody on this machine could see; nothing was copied",
                "export MUSTER_SERVE_STORE with the whole address, or PGPASSWORD with the password",
            )
        if (flaw := database_flaw(named)) is not None:
            raise BadInput(f"URL {flaw.problem}; nothing was copied", flaw.fix)
    require_driver()
    return named or store_url(load_config(project.root).serve)


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise BadInput(f"{text!r} is no file name", "muster db backup FILE")
    return Path(text).absolute()


def _size(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"

"""`[profiles]`: which words of a task ask for which kind of agent."""

from __future__ import annotations

from collections.abc import Mapping

from muster.config.tables import Table, fail
from muster.config.values import read_texts
from muster.model.profiles import GENERAL_PURPOSE, words_of

_TABLE = {
    "devops-engineer": """
        deploy*, docker*, kubernetes, k8s, helm, terraform, ansible, pulumi, ci, cd, ci cd, pipeline,
        container*, infrastructure, rollback, rollout, roll out, nginx, systemd, provision*, github actions,
        gitlab, jenkins, runner, aws, gcp, azure, s3, ecs, vpc, cdn, dns, cloud, cloudflare, prometheus,
        grafana, datadog, sentry, loki, alert, monitoring, monitor, metrics, health check, log rotation, logs,
        autoscal*, cluster, argo, canary, blue green, reverse proxy, load balancer, build matrix, nightly build,
        cross compilation, makefile, cron, release to, registry, image size, staging, production, workflow, cert
        manager, certificate, backup, volumes, automate
    """,
    "security-specialist": """
        security, secure, auth, authenti*, authoriz*, authoris*, oauth, saml, sso, sign on, two factor, mfa,
        2fa, jwt, token, session cookie, cookie, compliance, gdpr, encrypt*, vulnerab*, cve, secret, vault,
        permission, rbac, role, csrf, xss, cors, injection, csp, content security policy, tls, password, threat,
        penetration, harden*, sanitiz*, signature, signed, pii, audit, audit log, login attempts, session,
        cipher, ssh, scan, signing
    """,
    "testing-specialist": """
        test, tester, testing, coverage, pytest, unittest, jest, vitest, playwright, cypress, selenium, fixture,
        regression, fuzz*, benchmark, mock, snapshot, e2e, end to end, qa, flaky, golden file, smoke, test
        suite, acceptance, property based, assert, simulat*, verify, stress, chaos, unskip
    """,
    "database-architect": """
        database, schema, migration, migrate, migrating, sql, postgres*, sqlite, mysql, mongodb, index, indexes,
        indices, query, queries, orm, sqlalchemy, alembic, table, column, foreign key, constraint, partition*,
        shard*, replica, stored procedure, materialized view, er diagram, rows, seed, backfill, normaliz*,
        autovacuum, vacuum, pgbouncer, connection pool*, full text search, tsvector, data model, soft delete,
        dump
    """,
    "backend-development": """
        api, endpoint, server, server side, backend, back end, rest, graphql, grpc, webhook, microservice,
        service, middleware, crud, redis, queue, worker, background job, job, event bus, consumer, openapi, rate
        limit*, paginat*, websocket server, resolver, upload*, notification, email service, cache, import,
        payment, idempotency, filtering, sorting, export
    """,
    "frontend-development-agent": """
        ui, ux, component, react, frontend, front end, css, html, browser, button, stylesheet, accessib*, vue,
        svelte, angular, tailwind, page, screen, view, form, navbar, sidebar, menu, footer, header, modal,
        dialog, tooltip, toast, dropdown, layout, responsive, dark mode, theme, theming, dashboard, chart,
        spinner, wizard, hook, storybook, design system, landing page, label, autocomplete, search box, drag and
        drop, keyboard, mobile, breadcrumb*, style, tab, scroll, z index, contrast, overlay, picker, localiz*,
        render, empty state, onboarding, focus, link
    """,
    "codi-documentation-writer": """
        document*, docs, doc, guide, readme, tutorial, changelog, docstring, glossary, reference, manual,
        handbook, faq, runbook, release notes, man page, wiki, quickstart, getting started, how to, explain,
        describe, proofread, translate, comments, examples, screenshots, architecture decision record, adr,
        troubleshooting, screencast, clarify, help text, text
    """,
}
PROFILES: Mapping[str, tuple[str, ...]] = {
    name: tuple(" ".join(word.split()) for word in words.split(",")) for name, words in _TABLE.items()
}
"""The usual table.  Of equal scores the one that stands first wins."""


def read_profiles(table: Table) -> dict[str, tuple[str, ...]]:
    """The usual table with what the section says: new names behind it, words of a known name instead of its own,
    no words to leave it out.  Raises BadConfig."""
    profiles = dict(PROFILES)
    for name in table.names():
        if name == GENERAL_PURPOSE:
            fail(table.path(name), "is what no word leads to", "take it out, or give the words another name")
        words = table.read(name, _words, ())
        if words:
            profiles[name] = words
        else:
            profiles.pop(name, None)
    return profiles


def _words(key: str, value: object) -> tuple[str, ...]:
    words = read_texts(key, value)
    for word in words:
        if (
            not words_of(word)
            or "*" in word.removesuffix("*")
            or (word.endswith("*") and len(words_of(word)) > 1)
        ):
            fail(
                key, f"{word!r} is no word", 'write a word, several ("front end"), or a beginning ("deploy*")'
            )
    return words

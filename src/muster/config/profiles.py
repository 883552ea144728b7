"""`[profiles]`: which words of a task ask for which kind of agent."""

from __future__ import annotations

from collections.abc import Mapping

from muster.config.tables import Table, fail
from muster.config.values import read_texts
from muster.model.profiles import GENERAL_PURPOSE, words_of

_TABLE = {
    "devops-engineer": """
        deploy*, docker*, kubernetes, k8s, helm, terraform, ansible, ci, cd, ci cd, pipeline, container*,
        infrastructure, rollback, nginx, systemd, provision*
    """,
    "security-specialist": """
        security, secure, auth, authenti*, authoriz*, authoris*, oauth, compliance, encrypt*, vulnerab*, secret,
        permission, csrf, xss, tls, password, threat
    """,
    "testing-specialist": """
        test, tester, validat*, coverage, pytest, unittest, fixture, regression, fuzz*, benchmark,
        e2e, end to end, qa
    """,
    "database-architect": """
        database, schema, migration, migrate, migrating, sql, postgres*, sqlite, mysql, index*, query,
        queries, orm
    """,
    "backend-development": """
        api, endpoint, server, backend, back end, rest, graphql, grpc, webhook, microservice, middleware
    """,
    "frontend-development-agent": """
        ui, ux, component, react, frontend, front end, css, html, browser, button, stylesheet,
        accessib*, vue, svelte
    """,
    "codi-documentation-writer": """
        document*, docs, guide, readme, tutorial, changelog, docstring, glossary
    """,
}
PROFILES: Mapping[str, tuple[str, ...]] = {
    name: tuple(word.strip() for word in words.split(",")) for name, words in _TABLE.items()
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

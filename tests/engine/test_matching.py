"""Which agent gets which task, how many at one time, and in what order."""

from __future__ import annotations

import pytest
from engine_rig import HOST, LEASE_S, W1, W2, Rig, complete
from hypothesis import given
from hypothesis import strategies as st
from test_claims import keys

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.commands import Offer
from muster.model.edits import EditTask
from muster.model.profiles import Chooser, offered
from muster.ports.runtime import READY


def limited(**policy: object) -> Rig:
    return Rig(Policy(lease_s=LEASE_S, **policy))  # type: ignore[arg-type]


# -- capabilities and profiles


def test_only_an_agent_that_can_do_all_of_it_gets_it(rig: Rig) -> None:
    rig.register(W1, agents=("claude", "codex"), offers={"claude": Offer(capabilities=("rust",))})
    rig.enqueue(
        {"a": [], "b": []}, specs={"a": {"capabilities": ("rust", "gpu")}, "b": {"capabilities": ("rust",)}}
    )
    assert [(job.key, job.agent) for job in rig.claim()] == [("b", "claude")]
    assert rig.views()["a"].why == "no agent offers gpu: add it to agents.NAME.capabilities in muster.toml"
    rig.register(
        W2, agents=("codex",), general=(), offers={"codex": Offer(capabilities=("gpu", "rust", "go"))}
    )
    assert rig.views()["a"].why == "ready, a worker takes it now"
    assert [(job.key, job.agent) for job in rig.claim(W2)] == [("a", "codex")]


def test_an_agent_that_is_named_must_be_able_as_well(rig: Rig) -> None:
    rig.register(agents=("claude",))
    rig.enqueue({"a": []}, specs={"a": {"agent": "claude", "capabilities": ("rust",)}})
    assert rig.claim() == ()
    assert rig.views()["a"].why.startswith("agent claude does not offer rust")


def test_an_agent_that_cannot_run_offers_nothing(rig: Rig) -> None:
    rig.register(
        agents=("claude",), offers={"claude": Offer(capabilities=("rust",))}, unfit={"claude": "no such file"}
    )
    rig.enqueue({"a": []}, specs={"a": {"capabilities": ("rust",)}})
    assert rig.claim() == ()


def test_only_an_agent_that_serves_the_target_gets_it(rig: Rig) -> None:
    serves = Offer(capabilities=offered(("rust",), ("prod",)))
    rig.register(W1, agents=("claude",), offers={"claude": Offer(capabilities=("rust", "prod"))})
    rig.enqueue({"a": []}, specs={"a": {"capabilities": ("rust",), "target": "prod"}})
    assert rig.claim() == ()
    view = rig.views()["a"]
    assert view.why == "no agent serves prod: add it to agents.NAME.targets in muster.toml"
    assert (view.capabilities, view.target) == (("rust",), "prod")
    rig.register(W2, agents=("ops",), general=(), offers={"ops": serves})
    (job,) = rig.claim(W2)
    assert (job.key, job.agent) == ("a", "ops")
    rig.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="drain"))
    rig.do(c.Transfer(task_id=job.task_id, actor="ada", agent="claude"))
    assert rig.claim(W1) == ()
    rig.do(EditTask(task_id=job.task_id, actor="ada", given={"target": None}))
    assert [job.agent for job in rig.claim(W1)] == ["claude"]


TABLE = {"cook": ("soup",), "writer": ("guide",)}


def test_a_task_that_is_added_without_a_kind_gets_the_one_that_its_words_ask_for() -> None:
    rig = limited(profiles=TABLE)
    rig.register(agents=("claude", "codex"), offers={"codex": Offer(profiles=("writer",))})
    specs = {"a": {"title": "A guide"}, "b": {"title": "A guide", "agent": "claude"}, "c": {"title": "Else"}}
    rig.enqueue(dict.fromkeys(specs, ()), specs=specs)
    profiles = {key: view.profile for key, view in rig.views().items()}
    assert profiles == {"a": "writer", "b": None, "c": "general-purpose"}
    assert {job.key: job.agent for job in rig.claim()} == {"a": "codex", "b": "claude", "c": "claude"}


def test_the_usual_agent_goes_before_the_words_unless_more_is_asked_for() -> None:
    rig = limited(profiles=TABLE, usual_agent="claude")
    specs = {"a": {"title": "A guide"}, "b": {"title": "A guide", "capabilities": ("rust",)}}
    rig.enqueue(dict.fromkeys(specs, ()), specs=specs)
    assert {key: view.profile for key, view in rig.views().items()} == {"a": None, "b": "writer"}


def test_the_same_key_adds_nothing_also_after_the_words_have_changed() -> None:
    once = {"specs": {"a": {"title": "A guide", "key": None, "idempotency_key": "k", "delay_s": 60}}}
    rig = limited(profiles=TABLE)
    first = rig.enqueue({"a": ()}, **once)
    rig.clock.advance(5)
    rig.engine._enqueuer._chooser = Chooser({"painter": ("guide",)})
    assert rig.enqueue({"a": ()}, **once).task_ids == first.task_ids


def test_a_profile_is_a_preference(rig: Rig) -> None:
    offers = {"codex": Offer(profiles=("writer",))}
    rig.register(agents=("claude", "codex"), general=("claude", "codex"), offers=offers)
    rig.enqueue({"a": [], "b": [], "c": []}, specs={"b": {"profile": "writer"}, "c": {"profile": "cook"}})
    assert {job.key: job.agent for job in rig.claim()} == {"a": "claude", "b": "codex", "c": "claude"}


def test_a_profile_finds_its_agent_also_where_it_is_not_a_general_one(rig: Rig) -> None:
    rig.register(agents=("claude", "codex"), offers={"codex": Offer(profiles=("writer",))})
    rig.enqueue({"a": []}, specs={"a": {"profile": "writer"}})
    assert [job.agent for job in rig.claim()] == ["codex"]


def test_a_worker_takes_what_its_agents_are_good_at_first(rig: Rig) -> None:
    rig.register(agents=("codex",), general=("codex",), offers={"codex": Offer(profiles=("writer",))})
    rig.enqueue(
        {"a": [], "b": [], "c": []},
        specs={"a": {"profile": "cook"}, "c": {"profile": "cook", "priority": 9}, "b": {"profile": "writer"}},
    )
    assert [job.key for job in rig.claim()] == ["c", "b", "a"]


# -- order


def test_the_sort_key_is_the_second_key_and_age_the_third(rig: Rig) -> None:
    rig.register()
    specs = {
        "a": {"sort_key": 5},
        "b": {"sort_key": -1},
        "c": {"sort_key": 5},
        "d": {"sort_key": 99, "priority": 6},
    }
    rig.enqueue({"a": [], "b": [], "c": []}, specs=specs)
    rig.enqueue({"d": []}, plan="other", specs=specs)
    assert [job.key for job in rig.claim()] == ["d", "b", "a", "c"]


@given(
    st.lists(
        st.tuples(st.integers(1, 10), st.integers(-3, 3), st.sampled_from(["", "k1", "k2"])), max_size=12
    )
)
def test_the_order_is_that_of_the_keys_whatever_the_lanes(task_fields: list[tuple[int, int, str]]) -> None:
    rig = Rig()
    rig.register(slots=20)
    names = [f"t{n:02}" for n in range(len(task_fields))]
    specs = {
        name: {"priority": priority, "sort_key": sort_key, "limit_key": limit or None}
        for name, (priority, sort_key, limit) in zip(names, task_fields, strict=True)
    }
    rig.enqueue({name: [] for name in names}, specs=specs)
    expected = [
        name
        for _, name in sorted(
            zip(task_fields, names, strict=True), key=lambda pair: (-pair[0][0], pair[0][1], pair[1])
        )
    ]
    assert [job.key for job in rig.claim(slots=20)] == expected
    rig.audit()
    rig.store.close()


# -- limits (S12)


def test_tasks_of_one_limit_key_share_its_places() -> None:
    rig = limited(limits={"gpu": 2})
    rig.register()
    rig.enqueue({key: [] for key in "abcd"}, specs={key: {"limit_key": "gpu"} for key in "abc"})
    jobs = rig.claim()
    assert [job.key for job in jobs] == ["a", "b", "d"]
    assert rig.claim() == ()
    assert rig.views()["c"].why == "waits for its turn: 2 of 2 tasks of limit gpu run already"
    rig.start(*jobs)
    rig.do(complete(jobs[0]))
    assert [job.key for job in rig.claim()] == ["c"]
    rig.store.close()


def test_a_key_without_a_limit_limits_nothing(rig: Rig) -> None:
    rig.register()
    rig.enqueue({key: [] for key in "abc"}, specs={key: {"limit_key": "gpu"} for key in "abc"})
    assert len(rig.claim()) == 3


def test_an_agents_places_are_counted_over_all_workers() -> None:
    rig = limited(agent_slots={"claude": 3})
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({key: [] for key in "abcde"})
    first, second = rig.apply(rig.claim_command(W1, 2), rig.claim_command(W2, 2)).outcomes
    assert (keys(first), keys(second)) == (["a", "b"], ["c"])
    assert rig.claim(W2) == rig.claim(W1) == ()
    assert rig.views()["d"].why == "waits for agent claude, which does 3 of 3 tasks already"
    rig.store.close()


def test_another_agent_takes_what_a_full_one_cannot() -> None:
    rig = limited(agent_slots={"claude": 1})
    rig.register(agents=("claude", "codex"), general=("claude", "codex"))
    rig.enqueue({key: [] for key in "abc"})
    assert [job.agent for job in rig.claim()] == ["claude", "codex", "codex"]
    rig.store.close()


@pytest.mark.promise("S12")
@given(
    st.lists(st.tuples(st.sampled_from([W1, W2]), st.integers(1, 4), st.booleans()), max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_nothing_is_ever_overfilled(claims: list[tuple[str, int, bool]], agent: int, key: int) -> None:
    rig = limited(agent_slots={"claude": agent}, limits={"gpu": key})
    rig.register(W1, agents=("claude", "codex"), general=("claude", "codex"), slots=4)
    rig.register(W2, slots=3)
    rig.enqueue(
        {f"t{n}": [] for n in range(20)}, specs={f"t{n}": {"limit_key": "gpu"} for n in range(0, 20, 2)}
    )
    gpu = {rig.id(f"t{n}") for n in range(0, 20, 2)}
    batch: list[c.Command] = []
    held: list[object] = []
    for worker_id, slots, ends in claims:
        batch.append(rig.claim_command(worker_id, slots))
        if not ends:
            continue
        held = [job for outcome in rig.apply(*batch).outcomes for job in outcome.jobs]  # type: ignore[union-attr]
        batch.clear()
        open_now = drive(rig.reads.open_attempts((0, 0), 1000))
        assert sum(attempt.agent == "claude" for attempt in open_now) <= agent
        assert sum(attempt.task_id in gpu for attempt in open_now) <= key
        assert sum(attempt.worker_id == W1 for attempt in open_now) <= 4
        assert sum(attempt.worker_id == W2 for attempt in open_now) <= 3
        if held:
            rig.start(held[0])  # type: ignore[arg-type]
            rig.do(complete(held[0]))  # type: ignore[arg-type]
    rig.audit()
    rig.store.close()


@pytest.mark.parametrize("hostname", [HOST, "elsewhere"])
def test_a_worker_of_any_host_counts(hostname: str) -> None:
    rig = limited(agent_slots={"claude": 1})
    rig.register(W1)
    rig.register(W2, hostname=hostname)
    rig.enqueue({"a": [], "b": []})
    assert (len(rig.claim(W1)), len(rig.claim(W2))) == (1, 0)
    rig.store.close()


@pytest.mark.parametrize("limits", [{}, {"gpu": 1}])
def test_who_waits_for_a_place_is_woken_when_one_is_free(limits: dict[str, int]) -> None:
    rig = limited(limits=limits)
    rig.register()
    rig.enqueue({"a": [], "b": []}, specs={"a": {"limit_key": "gpu"}, "b": {"limit_key": "gpu"}})
    job, *_ = rig.started()
    assert (READY in rig.apply(complete(job)).topics) == bool(limits)
    rig.store.close()


def test_an_agent_without_profiles_keeps_the_plans_order(rig: Rig) -> None:
    rig.register()
    profiles = {"a": "devops-engineer", "b": "general-purpose", "c": None, "d": "testing-specialist"}
    rig.enqueue({key: [] for key in profiles}, specs={k: {"profile": p} for k, p in profiles.items()})
    assert [job.key for job in rig.claim()] == ["a", "b", "c", "d"]


def test_the_preferred_kind_goes_before_a_general_agent_and_that_before_another_kind(rig: Rig) -> None:
    offers = {"cook": Offer(profiles=("cook",)), "writer": Offer(profiles=("writer",))}
    rig.register(agents=("cook", "plain", "writer"), general=("cook", "plain", "writer"), offers=offers)
    tasks = {"a": "writer", "b": "driver", "c": "general-purpose"}
    rig.enqueue({key: [] for key in tasks}, specs={key: {"profile": name} for key, name in tasks.items()})
    assert {job.key: job.agent for job in rig.claim()} == {"a": "writer", "b": "plain", "c": "cook"}


def test_one_writer_at_a_time_works_in_a_shared_folder() -> None:
    rig = limited(writers=frozenset({"claude", "codex"}))
    both = ("claude", "codex", "reader")
    rig.register(W1, agents=both, general=("claude",))
    rig.register(W2, agents=both, general=("codex",))
    rig.enqueue({key: [] for key in "abcd"}, specs={"d": {"agent": "reader"}})
    first, second = rig.apply(rig.claim_command(W1, 3), rig.claim_command(W2, 3)).outcomes
    assert [job.agent for job in (*first.jobs, *second.jobs)] == ["claude", "reader"]  # type: ignore[union-attr]
    assert rig.claim(W2) == ()
    assert rig.views()["b"].why == "waits for its turn: one agent at a time writes in this folder"
    job = first.jobs[0]  # type: ignore[union-attr]
    rig.start(job)
    assert READY in rig.apply(complete(job)).topics, "who waits is woken"
    assert [job.agent for job in rig.claim(W2)] == ["codex"]
    rig.store.close()

"""A hypothesis state machine that drives the API and keeps the plain model beside it."""

import copy
import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.reliability.model import (
    ROOM,
    UNIT,
    Hold,
    Ledger,
    Part,
    Requested,
    SharedLedger,
    budget_fields,
    limit_rho,
    lowered_plan,
    rho_of,
)
from tests.reliability.wire import Ask, Heard

SLACK = 1e-9
"""In units: far above the rounding of a few hundred sums, far below the half unit that decides."""

STEPS_BETWEEN_AUDITS = 5
PARTS = ("north", "south", "east")
MOST_OPEN = 20
"""How many requests one token may have open in one dataset."""
TEAM = "lab"
"""That of the token that asks for everything."""
units = st.integers(1, 12)
limits = st.integers(5, 60)
replica_numbers = st.integers(0, 1)
picks = st.integers(0, 10**6)


class Site(Protocol):
    """A database with two replicas of the service on it, and a clock that both of them read."""

    def ask(self, replica: int, request: Ask) -> Heard: ...
    def restart(self, replica: int) -> None: ...
    def sweep(self, replica: int) -> None: ...
    def advance(self, seconds: int) -> None: ...
    def now(self) -> float: ...


@dataclass(frozen=True)
class Asked:
    """A request that was decided for good, and its answer."""

    request: Ask
    answer: Heard


def shared_budget(tenths: int, millionths: int) -> dict[str, Any]:
    """The numbers as they are written on paper."""
    return {
        "accounting": "shared",
        "epsilon": float(f"{tenths}e-1"),
        "delta": float(f"{millionths}e-6"),
    }


def part_of_budget(part: str, tenths: int, millionths: int) -> dict[str, Any]:
    """An allocation as it is asked for."""
    amounts = shared_budget(tenths, millionths)
    kind = {"accounting": "zcdp"}
    return {"name": part, "epsilon": amounts["epsilon"], "delta": amounts["delta"], "budget": kind}


class LedgerMachine(RuleBasedStateMachine):
    """Every rule sends one request and says beforehand, from the model, what the answer must be."""

    site: ClassVar[Site]
    steps: ClassVar[int] = 0
    _numbers: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: dict[str, Ledger] = {}
        self.holds: dict[str, Hold] = {}
        self.closed: list[str] = []
        self.overdue: set[str] = set()
        self.swept: set[str] = set()
        self.requests: dict[str, Requested] = {}
        self.closed_requests: list[str] = []
        self.decided: list[Asked] = []
        self.touched: set[str] = set()
        self.changed: set[str] = set()
        self.unchecked = 0

    # What every rule needs.

    def fresh(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def pick_dataset(self, pick: int) -> str:
        return sorted(self.ledgers)[pick % len(self.ledgers)]

    def pick_part(self, name: str, pick: int) -> str | None:
        ledger = self.ledgers[name]
        if isinstance(ledger, SharedLedger):
            return sorted(ledger.allocations)[pick % len(ledger.allocations)]
        return [None, *sorted(self.ledgers[name].parts)][pick % (len(self.ledgers[name].parts) + 1)]

    def send(self, replica: int, request: Ask) -> Heard:
        type(self).steps += 1
        return self.site.ask(replica, request)

    def decide(
        self, replica: int, request: Ask, granted: bool, refusal: str | None = "budget-exhausted"
    ) -> Heard:
        """Send a fresh request that must be granted or refused as the model says."""
        answer = self.send(replica, request)
        if granted:
            assert answer.status in (200, 201), (request, answer)
        else:
            assert (answer.status, answer.problem) == (409, refusal), (request, answer)
        assert not answer.replayed
        self.decided.append(Asked(request, answer))
        return answer

    # The rules.

    @initialize(limit=limits, private=st.booleans(), planned=st.booleans())
    def open_first(self, limit: int, private: bool, planned: bool) -> None:
        self.open(limit, private, planned, 0)

    @precondition(lambda self: len(self.ledgers) < 3)
    @rule(limit=limits, private=st.booleans(), planned=st.booleans(), replica=replica_numbers)
    def open(self, limit: int, private: bool, planned: bool, replica: int) -> None:
        name = self.fresh("data")
        budget = budget_fields(limit, planned)
        key = "private" if private else "fixed"
        body = {"name": name, "budget": budget, "partition_key": key}
        self.decide(replica, Ask("/v1/datasets", body, self.fresh("key")), granted=True)
        self.ledgers[name] = Ledger(limit, private, planned)
        self.touched.add(name)

    @precondition(lambda self: len(self.shared_names()) < 2)
    @rule(limit=st.integers(2, 12), limit_millionths=st.integers(2, 30), replica=replica_numbers)
    def open_shared(self, limit: int, limit_millionths: int, replica: int) -> None:
        """A shared budget; one allocation is opened with it, so that there is something to spend from."""
        name = self.fresh("shared")
        body = {"name": name, "budget": shared_budget(limit, limit_millionths)}
        self.decide(replica, Ask("/v1/datasets", body, self.fresh("key")), granted=True)
        self.ledgers[name] = SharedLedger(limit, limit_millionths=limit_millionths)
        self.allocate_in(name, 2, 2, replica)

    def shared_names(self) -> list[str]:
        return [name for name, ledger in sorted(self.ledgers.items()) if ledger.shared]

    @precondition(lambda self: self.shared_names())
    @rule(pick=picks, tenths=st.integers(1, 6), millionths=st.integers(1, 6), replica=replica_numbers)
    def allocate(self, pick: int, tenths: int, millionths: int, replica: int) -> None:
        names = self.shared_names()
        self.allocate_in(names[pick % len(names)], tenths, millionths, replica)

    def allocate_in(self, name: str, tenths: int, millionths: int, replica: int) -> None:
        ledger, part = self.ledgers[name], self.fresh("part")
        assert isinstance(ledger, SharedLedger)
        granted = ledger.allocates(tenths, millionths)
        given = part_of_budget(part, tenths, millionths)
        answer = self.decide(
            replica, Ask(f"/v1/datasets/{name}/allocations", given, self.fresh("key")), granted
        )
        if granted:
            self.note_allocation(name, part, tenths, millionths, answer.body["budget"]["rho"])
        self.touched.add(name)

    def note_allocation(self, name: str, part: str, tenths: int, millionths: int, rho: float) -> None:
        ledger = self.ledgers[name]
        assert isinstance(ledger, SharedLedger)
        ledger.allocations[part] = Part(tenths, millionths, rho / (ROOM + 0.5))
        ledger.note("allocated")

    @precondition(lambda self: self.shared_names())
    @rule(pick=picks, part_pick=picks, replica=replica_numbers)
    def return_allocation(self, pick: int, part_pick: int, replica: int) -> None:
        """Untouched ones come back, but the last of a dataset is kept; of others nothing comes back."""
        names = self.shared_names()
        name = names[pick % len(names)]
        ledger, part = self.ledgers[name], self.pick_part(name, part_pick)
        assert isinstance(ledger, SharedLedger)
        assert part is not None
        held = any((each.dataset, each.part) == (name, part) for each in self.holds.values())
        untouched = not (held or ledger.allocations[part].released)
        if untouched and len(ledger.allocations) == 1:
            return
        path = f"/v1/datasets/{name}/allocations/{part}/return"
        request = Ask(path, {"reason": "as agreed"}, self.fresh("key"))
        self.touched.add(name)
        if not untouched:
            answer = self.send(replica, request)
            assert (answer.status, answer.problem) == (409, "allocation-in-use"), answer
            return
        self.decide(replica, request, granted=True)
        del ledger.allocations[part]
        ledger.returned.append(part)
        ledger.note("allocation-returned")

    @precondition(lambda self: any(self.ledgers[name].returned for name in self.shared_names()))
    @rule(pick=picks, replica=replica_numbers)
    def spend_what_was_returned(self, pick: int, replica: int) -> None:
        names = [name for name in self.shared_names() if self.ledgers[name].returned]
        name = names[pick % len(names)]
        part = self.ledgers[name].returned[0]
        body = {"run": "run", "releases": [{"mechanism": "zcdp", "rho": UNIT}], "allocation": part}
        answer = self.send(replica, Ask(f"/v1/datasets/{name}/authorizations", body, self.fresh("key")))
        assert (answer.status, answer.problem) == (409, "allocation-returned"), answer
        self.touched.add(name)

    @rule(pick=picks, part_pick=picks, cost=units, replica=replica_numbers)
    def authorize(self, pick: int, part_pick: int, cost: int, replica: int) -> None:
        name = self.pick_dataset(pick)
        part, ledger = self.pick_part(name, part_pick), self.ledgers[name]
        refusal = ledger.refusal(cost, part)
        path, body = f"/v1/datasets/{name}/authorizations", ledger.step_fields("run", cost, part)
        self.decide(replica, Ask(path, body, self.fresh("key")), refusal is None, refusal)
        if refusal is None:
            ledger.spend(cost, part, "run")
        self.touched.add(name)

    @rule(
        pick=picks,
        part_pick=picks,
        cost=units,
        times=st.integers(1, 5),
        seconds=st.sampled_from([10.5, 60.5]),
        replica=replica_numbers,
    )
    def reserve(self, pick: int, part_pick: int, cost: int, times: int, seconds: float, replica: int) -> None:
        name = self.pick_dataset(pick)
        part, ledger = self.pick_part(name, part_pick), self.ledgers[name]
        refusal = ledger.refusal(cost * times, part)
        body = {**ledger.step_fields("held", cost, part), "times": times, "expires_in_seconds": seconds}
        request = Ask(f"/v1/datasets/{name}/reservations", body, self.fresh("key"))
        answer = self.decide(replica, request, refusal is None, refusal)
        if refusal is None:
            ledger.commit(cost * times, part)
            ledger.quota_use += cost * times
            ledger.note("reserved")
            until = self.site.now() + seconds
            self.holds[answer.body["id"]] = Hold(name, part, cost, times, until, ledger.quota_number)
        self.touched.add(name)

    @precondition(lambda self: self.holds)
    @rule(pick=picks, used_pick=picks, replica=replica_numbers)
    def settle(self, pick: int, used_pick: int, replica: int) -> None:
        held_id = sorted(self.holds)[pick % len(self.holds)]
        hold = self.holds.pop(held_id)
        used = used_pick % (hold.times + 1)
        request = Ask(f"/v1/reservations/{held_id}/settlement", {"used": used}, self.fresh("key"))
        self.decide(replica, request, granted=True)
        ledger = self.ledgers[hold.dataset]
        ledger.commit(-hold.each * (hold.times - used), hold.part)
        if hold.quota_number == ledger.quota_number:
            ledger.quota_use -= hold.each * (hold.times - used)
        if used:
            ledger.release(hold.part)
        ledger.note("settled")
        self.closed.append(held_id)
        self.touched.add(hold.dataset)

    @precondition(lambda self: self.closed)
    @rule(pick=picks, replica=replica_numbers)
    def settle_what_is_closed(self, pick: int, replica: int) -> None:
        held_id = self.closed[pick % len(self.closed)]
        request = Ask(f"/v1/reservations/{held_id}/settlement", {"used": 0}, self.fresh("key"))
        answer = self.send(replica, request)
        assert (answer.status, answer.problem) == (409, "reservation-closed"), answer
        self.touched.add(held_id.rpartition("~")[0])

    @rule(seconds=st.sampled_from([1, 7, 30, 100]))
    def advance(self, seconds: int) -> None:
        type(self).steps += 1
        self.site.advance(seconds)
        for held_id, hold in list(self.holds.items()):
            if hold.expires_at < self.site.now():
                del self.holds[held_id]
                self.closed.append(held_id)
                self.overdue.add(held_id)
                self.ledgers[hold.dataset].release(hold.part)
                self.touched.add(hold.dataset)

    def other_limit(self, name: str, limit: int) -> dict[str, Any]:
        ledger = self.ledgers[name]
        if isinstance(ledger, SharedLedger):
            return shared_budget(limit, ledger.limit_millionths)
        return lowered_plan(limit) if ledger.planned else {"accounting": "zcdp", "rho": limit_rho(limit)}

    @rule(pick=picks, limit=limits, replica=replica_numbers)
    def change_budget(self, pick: int, limit: int, replica: int) -> None:
        name = self.pick_dataset(pick)
        body = {"budget": self.other_limit(name, limit), "reason": "as agreed"}
        seen = self.look(name, "budget").body["sequence"]
        path = f"/v1/datasets/{name}/budget-changes"
        request = Ask(path, body, self.fresh("key"), if_match=seen)
        if self.ledgers[name].planned and limit > self.ledgers[name].limit:
            assert self.send(replica, request).status == 422, "a plan is lowered, never raised"
            return
        self.decide(replica, request, granted=True)
        self.ledgers[name].change_limit(limit)
        self.touched.add(name)

    @rule(pick=picks, limit=limits, replica=replica_numbers)
    def change_budget_unseen(self, pick: int, limit: int, replica: int) -> None:
        name = self.pick_dataset(pick)
        ledger = self.ledgers[name]
        lower = min(limit, ledger.limit) if ledger.planned else limit
        body = {"budget": self.other_limit(name, lower), "reason": "not agreed"}
        path = f"/v1/datasets/{name}/budget-changes"
        answer = self.send(replica, Ask(path, body, self.fresh("key"), if_match=0))
        assert (answer.status, answer.problem) == (412, "precondition-failed"), answer
        self.touched.add(name)

    @rule(pick=picks, own_limit=st.none() | limits, replica=replica_numbers)
    def open_partitions(self, pick: int, own_limit: int | None, replica: int) -> None:
        name = self.pick_dataset(pick)
        ledger = self.ledgers[name]
        unopened = [part for part in PARTS if part not in ledger.parts][:2]
        own = None if ledger.private or own_limit is None else own_limit
        own = None if own is not None and ledger.planned and own > ledger.limit else own
        body: dict[str, Any] = {"names": unopened or [PARTS[0]]}
        if own is not None:
            body["budget"] = self.other_limit(name, own)
        request = Ask(f"/v1/datasets/{name}/partitions", body, self.fresh("key"))
        self.touched.add(name)
        if ledger.shared or ledger.quota_number:
            answer = self.send(replica, Ask(request.path, {"names": ["north"]}, request.key))
            assert (answer.status, answer.problem) == (422, "unproven"), answer
            return
        if not unopened:
            answer = self.send(replica, request)
            assert (answer.status, answer.problem) == (409, "already-exists"), answer
            return
        self.decide(replica, request, granted=True)
        ledger.parts |= dict.fromkeys(unopened, 0)
        ledger.own_limits |= {} if own is None else dict.fromkeys(unopened, own)
        ledger.note("partitions-opened")

    @rule(pick=picks, quota=st.sampled_from([None, 0.25, 0.5]), replica=replica_numbers)
    def change_quota(self, pick: int, quota: float | None, replica: int) -> None:
        """Another part of the budget for the team whose token asks for everything here, or no quota."""
        name = self.pick_dataset(pick)
        ledger = self.ledgers[name]
        if ledger.shared:
            return
        body = {"team": TEAM, "fraction": quota, "reason": "as agreed"}
        request = Ask(f"/v1/datasets/{name}/quotas", body, self.fresh("key"))
        self.touched.add(name)
        if ledger.parts or (quota is None and ledger.quota is None):
            answer = self.send(replica, request)
            expected = (422, "unproven") if ledger.parts else (404, "not-found")
            assert (answer.status, answer.problem) == expected, answer
            return
        self.decide(replica, request, granted=True)
        ledger.limit_use(None if quota is None else Fraction(quota))
        ledger.note("quota-changed")

    def ask_for(self, replica: int, wanted: Requested, asked: dict[str, Any]) -> None:
        """Ask an admin, who is the same here: nothing is charged, whatever is asked."""
        if sum(each.dataset == wanted.dataset for each in self.requests.values()) >= MOST_OPEN:
            return
        body = {wanted.kind: asked, "reason": "as agreed"}
        path = f"/v1/datasets/{wanted.dataset}/budget-requests"
        answer = self.decide(replica, Ask(path, body, self.fresh("key")), granted=True)
        self.requests[answer.body["id"]] = wanted
        self.ledgers[wanted.dataset].note("budget-requested")

    @rule(pick=picks, limit=limits, replica=replica_numbers)
    def request_limit(self, pick: int, limit: int, replica: int) -> None:
        name = self.pick_dataset(pick)
        ledger = self.ledgers[name]
        limit = min(limit, ledger.limit) if ledger.planned else limit
        wanted = Requested(name, "budget", (limit,), budget_number=ledger.budget_number)
        self.ask_for(replica, wanted, self.other_limit(name, limit))
        self.touched.add(name)

    @precondition(lambda self: self.shared_names())
    @rule(pick=picks, tenths=st.integers(1, 6), millionths=st.integers(1, 6), replica=replica_numbers)
    def request_allocation(self, pick: int, tenths: int, millionths: int, replica: int) -> None:
        names = self.shared_names()
        name, part = names[pick % len(names)], self.fresh("part")
        wanted = Requested(name, "allocation", (tenths, millionths), part)
        self.ask_for(replica, wanted, part_of_budget(part, tenths, millionths))
        self.touched.add(name)

    @rule(pick=picks, quota=st.sampled_from([0.375, 0.625]), replica=replica_numbers)
    def request_quota(self, pick: int, quota: float, replica: int) -> None:
        """A larger quota can be asked for, and nothing else."""
        name = self.pick_dataset(pick)
        present = self.ledgers[name].quota
        if present is not None and present < quota:
            self.ask_for(replica, Requested(name, "quota", Fraction(quota)), {"fraction": quota})
        else:
            body = {"quota": {"fraction": quota}, "reason": "as agreed"}
            path = f"/v1/datasets/{name}/budget-requests"
            answer = self.send(replica, Ask(path, body, self.fresh("key")))
            expected = (404, "not-found") if present is None else (422, "invalid-input")
            assert (answer.status, answer.problem) == expected, answer
        self.touched.add(name)

    @precondition(lambda self: self.requests)
    @rule(pick=picks, replica=replica_numbers)
    def approve(self, pick: int, replica: int) -> None:
        """What was asked is carried out, or refused as the call itself would be, and stays open."""
        asked_id = sorted(self.requests)[pick % len(self.requests)]
        wanted = self.requests[asked_id]
        ledger = self.ledgers[wanted.dataset]
        request = self.decision(asked_id, wanted, "approve")
        self.touched.add(wanted.dataset)
        if self.is_outdated(wanted):
            answer = self.send(replica, request)
            assert (answer.status, answer.problem) == (409, "request-outdated"), answer
            return
        fits = True
        if isinstance(ledger, SharedLedger) and isinstance(wanted.amounts, tuple) and wanted.part:
            fits = ledger.allocates(*wanted.amounts)
        answer = self.decide(replica, request, fits)
        if fits:
            ledger.note("request-approved")
            self.carry_out(wanted, answer)
            self.close_request(asked_id)

    def is_outdated(self, wanted: Requested) -> bool:
        """Whether what was asked would change something else than was seen then."""
        ledger = self.ledgers[wanted.dataset]
        if isinstance(wanted.amounts, Fraction):
            return ledger.quota is None or ledger.quota >= wanted.amounts
        return wanted.kind == "budget" and wanted.budget_number != ledger.budget_number

    def carry_out(self, wanted: Requested, answer: Heard) -> None:
        ledger = self.ledgers[wanted.dataset]
        if isinstance(wanted.amounts, Fraction):
            ledger.limit_use(wanted.amounts)
            ledger.note("quota-changed")
        elif wanted.kind == "budget":
            ledger.change_limit(*wanted.amounts)
        else:
            tenths, millionths = wanted.amounts
            rho = answer.body["asked"]["budget"]["rho"]
            self.note_allocation(wanted.dataset, wanted.part, tenths, millionths, rho)

    def decision(self, asked_id: str, wanted: Requested, decision: str) -> Ask:
        path = f"/v1/datasets/{wanted.dataset}/budget-requests/{asked_id}/decision"
        return Ask(path, {"decision": decision, "reason": "as agreed"}, self.fresh("key"))

    def close_request(self, asked_id: str) -> None:
        del self.requests[asked_id]
        self.closed_requests.append(asked_id)

    @precondition(lambda self: self.requests)
    @rule(pick=picks, withdrawn=st.booleans(), replica=replica_numbers)
    def turn_down(self, pick: int, withdrawn: bool, replica: int) -> None:
        asked_id = sorted(self.requests)[pick % len(self.requests)]
        wanted = self.requests[asked_id]
        request = self.decision(asked_id, wanted, "reject")
        if withdrawn:
            path = f"/v1/datasets/{wanted.dataset}/budget-requests/{asked_id}/withdrawal"
            request = Ask(path, {"reason": "not needed"}, request.key)
        self.decide(replica, request, granted=True)
        self.ledgers[wanted.dataset].note("request-withdrawn" if withdrawn else "request-rejected")
        self.close_request(asked_id)
        self.touched.add(wanted.dataset)

    @precondition(lambda self: self.closed_requests)
    @rule(pick=picks, decision=st.sampled_from(["approve", "reject"]), replica=replica_numbers)
    def decide_what_is_closed(self, pick: int, decision: str, replica: int) -> None:
        asked_id = self.closed_requests[pick % len(self.closed_requests)]
        name = asked_id.rpartition("~")[0]
        answer = self.send(replica, self.decision(asked_id, Requested(name, "budget", ()), decision))
        assert (answer.status, answer.problem) == (409, "request-closed"), answer
        self.touched.add(name)

    @rule(
        chosen=st.lists(st.tuples(picks, picks, units), min_size=1, max_size=4),
        together=st.booleans(),
        replica=replica_numbers,
    )
    def authorize_many(self, chosen: list[tuple[int, int, int]], together: bool, replica: int) -> None:
        named = [(self.pick_dataset(pick), part_pick, cost) for pick, part_pick, cost in chosen]
        spends = [(name, self.pick_part(name, part_pick), cost) for name, part_pick, cost in named]
        after, refusals = self.simulate(spends)
        grants = [refusal is None for refusal in refusals]
        by_budget = "budget-exhausted" in refusals
        ledgers = self.ledgers
        items = [
            {"dataset": name, **ledgers[name].step_fields("bulk", cost, part)} for name, part, cost in spends
        ]
        body = {"mode": "all-or-nothing" if together else "each", "items": items}
        request = Ask("/v1/authorizations", body, self.fresh("key"))
        refusal = "budget-exhausted" if by_budget else "quota-exceeded"
        answer = self.decide(replica, request, all(grants) or not together, refusal)
        if all(grants) or not together:
            self.ledgers = after
            assert [("granted" in each) for each in answer.body["results"]] == grants
        self.touched |= {name for name, _, _ in spends}

    def simulate(
        self, spends: list[tuple[str, str | None, int]]
    ) -> tuple[dict[str, Ledger], list[str | None]]:
        """What deciding these one after another would give: the ledgers after it, and why each is refused."""
        after: dict[str, Ledger] = copy.deepcopy(self.ledgers)
        refusals: list[str | None] = []
        for name, part, cost in spends:
            refusals.append(after[name].refusal(cost, part))
            if refusals[-1] is None:
                after[name].spend(cost, part, "bulk")
        return after, refusals

    @precondition(lambda self: self.decided)
    @rule(pick=picks, replica=replica_numbers)
    def repeat(self, pick: int, replica: int) -> None:
        """The same key and request: the same answer, refusals included, whatever happened since."""
        asked = self.decided[pick % len(self.decided)]
        again = self.send(replica, asked.request)
        assert again.replayed
        assert (again.status, again.body) == (asked.answer.status, asked.answer.body)

    @precondition(lambda self: self.decided)
    @rule(pick=picks, replica=replica_numbers)
    def reuse(self, pick: int, replica: int) -> None:
        """The same key for another request is refused and changes nothing."""
        asked = self.decided[pick % len(self.decided)]
        answer = self.send(replica, asked.request.altered())
        assert (answer.status, answer.problem) == (422, "idempotency-key-reused"), (asked.request, answer)

    @rule(replica=replica_numbers)
    def sweep(self, replica: int) -> None:
        """The service's own look-out for what nobody settled."""
        type(self).steps += 1
        self.site.sweep(replica)
        self.swept |= self.overdue
        self.touched |= set(self.ledgers)

    @rule(replica=replica_numbers)
    def restart(self, replica: int) -> None:
        type(self).steps += 1
        self.site.restart(replica)

    # What must hold after every step.

    def look(self, name: str, what: str) -> Heard:
        answer = self.site.ask(0, Ask(f"/v1/datasets/{name}/{what}", method="GET"))
        assert answer.status == 200, answer
        return answer

    @invariant()
    def budgets_say_what_the_model_says(self) -> None:
        for name in sorted(self.touched):
            self.check_budget(name)
        self.changed |= self.touched
        self.touched.clear()
        self.unchecked += 1
        if self.unchecked >= STEPS_BETWEEN_AUDITS:
            self.audit()

    def teardown(self) -> None:
        self.audit()

    def audit(self) -> None:
        """Everything that is kept of what happened, entry by entry."""
        for name in sorted(self.changed):
            self.check_entries(name)
            self.check_runs(name)
            self.check_requests(name)
            verdict = self.look(name, "verification").body
            assert (verdict["valid"], verdict["problems"]) == (True, [])
        self.changed.clear()
        self.unchecked = 0

    def check_budget(self, name: str) -> None:
        shown, ledger = self.look(name, "budget").body, self.ledgers[name]
        if isinstance(ledger, SharedLedger):
            self.check_shared(name, shown, ledger)
            return
        assert rho_of(shown["limit"]) == limit_rho(ledger.limit)
        left, exact = rho_of(shown["remaining"]) / UNIT, float(ledger.remaining())
        assert exact - SLACK <= left <= exact
        heaviest = max(burden for burden, _ in ledger.burdens(None))
        assert heaviest <= rho_of(shown["spent"]) / UNIT <= heaviest + SLACK
        if ledger.quota_number:
            self.check_quota(name, ledger)

    def check_quota(self, name: str, ledger: Ledger) -> None:
        """What the team may still use."""
        quotas = self.look(name, "quotas").body["items"]
        assert len(quotas) == (ledger.quota is not None)
        for each in quotas:
            shown = each["remaining"]["fraction"] * (ledger.limit + 0.5)
            left = max(0.0, float(ledger.quota_left()))
            assert left - SLACK <= shown <= left

    def check_shared(self, name: str, shown: dict[str, Any], ledger: SharedLedger) -> None:
        """What is handed out, exactly, and what each allocation has committed."""
        tenths, millionths = ledger.allocated()
        budget = shared_budget(tenths, millionths)
        assert shown["allocated"] == {"epsilon": budget["epsilon"], "delta": budget["delta"]}
        left = shared_budget(max(0, ledger.limit - tenths), max(0, ledger.limit_millionths - millionths))
        assert shown["remaining"]["epsilon"] == left["epsilon"]
        assert shown["remaining"]["delta"] == left["delta"]
        counts = {"open": len(ledger.allocations), "returned": len(ledger.returned)}
        assert shown["allocations"] == counts
        for part, each in ledger.allocations.items():
            spent = self.look(name, f"allocations/{part}").body["spent"]["rho"] / each.unit
            assert each.committed - SLACK <= spent <= each.committed + SLACK

    def check_runs(self, name: str) -> None:
        """What runs have spent for good; what is held counts for its run when it is settled."""
        if self.ledgers[name].shared:
            return
        shown = {run["run"]: rho_of(run["spent"]) / UNIT for run in self.look(name, "runs").body["items"]}
        for run, spent in self.ledgers[name].runs.items():
            assert spent <= shown[run] <= spent + SLACK

    def check_requests(self, name: str) -> None:
        shown = self.look(name, "budget-requests?state=open&limit=1000").body["items"]
        open_here = [asked_id for asked_id, each in self.requests.items() if each.dataset == name]
        assert [each["id"] for each in shown] == sorted(open_here, key=lambda each: int(each.split("~")[1]))

    def check_entries(self, name: str) -> None:
        entries = self.look(name, "entries?limit=1000").body["items"]
        assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
        kinds = [entry["kind"] for entry in entries]
        found = {kind: kinds.count(kind) for kind in set(kinds) - {"expired"}}
        assert found == self.ledgers[name].kinds
        expired = [entry["reservation"] for entry in entries if entry["kind"] == "expired"]
        assert len(set(expired)) == len(expired)
        due = {held_id for held_id in self.overdue if held_id.startswith(f"{name}~")}
        assert due & self.swept <= set(expired) <= due

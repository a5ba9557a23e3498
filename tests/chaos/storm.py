"""A storm over one site: clients that ask, faults that a seed draws, and what is there when it is over."""

import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpledger.auth.keys import load_keys
from tests.chaos.classes import Class, Met, class_of_answer, class_of_error
from tests.chaos.faults import Tally, stream
from tests.chaos.history import Asked, History
from tests.chaos.proxy import Proxies
from tests.chaos.sites import LINK_RATE, REQUEST_RATE, Site, forbid_growth, site
from tests.chaos.verdict import Verdict, judge
from tests.chaos.workload import Scenery, Workload
from tests.reliability.ledgers import entries_of, look
from tests.reliability.wire import Ask, Heard, Line, ask

__all__ = ["Caller", "Outcome", "attempt", "look_back", "run_storm"]

CALLERS = 8
DRAIN_SECONDS = 120.0
ASKED_AGAIN = 3000
_HOURS = 3_600_000_000


@dataclass
class Caller:
    """One client: asks one thing after another, each until its answer is final."""

    port: int
    token: str
    workload: Workload
    history: History
    over: threading.Event
    give_up: threading.Event
    failure: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        """Ask until the storm is over, and then only for what is still open."""
        try:
            while not self.over.is_set():
                follow = [self.workload.next()]
                while follow:
                    asked = self.ask(follow.pop())
                    follow += self.workload.learn(asked)
        except BaseException as error:
            self.failure.append(error)
            raise

    def ask(self, request: Ask) -> Asked:
        """Ask until the answer is final, under the one key."""
        asked = self.history.begin(request)
        while not asked.answers and not self.give_up.is_set():
            met, heard = attempt(self.port, self.token, request)
            asked.met.append(met)
            if met.kind is Class.UNCLASSIFIED:
                return asked
            if met.kind is Class.FINAL and heard is not None:
                asked.answers.append(heard)
            else:
                time.sleep(0.02)
        return asked


def attempt(port: int, token: str, request: Ask) -> tuple[Met, Heard | None]:
    """Ask once; what was met, and the answer if one came."""
    sent = False
    try:
        line = Line(port, token)
        try:
            sent = True
            line.send(request)
            heard = line.hear()
        finally:
            line.close()
    except Exception as error:
        return class_of_error(error, sent=sent), None
    return class_of_answer(heard), heard


class Weather:
    """What happens to processes, clocks, disks and whole links; each is undone before the next."""

    def __init__(self, place: Site, dice: random.Random, tally: Tally, proxies: Proxies) -> None:
        self._site = place
        self._dice = dice
        self._tally = tally
        self._proxies = proxies

    def strike(self) -> None:
        """Do one thing, and wait a moment."""
        choices: list[tuple[str, int, Callable[[], None]]] = [
            ("service killed", 5, self._kill_service),
            ("service stopped", 3, self._stop_service),
            ("clock jumped", 4, self._jump),
        ]
        if self._site.database is None:
            choices.append(("disk full", 2, self._fill_disk))
        else:
            choices += [
                ("database killed", 2, self._kill_database),
                ("database stopped", 2, self._stop_database),
                ("database cut off", 4, self._cut_off),
            ]
            if self._site.database.disk is not None:
                choices.append(("disk full", 2, self._fill_database_disk))
        names, weights = [each[0] for each in choices], [each[1] for each in choices]
        kind = self._dice.choices(names, weights)[0]
        self._tally.note(kind)
        {name: work for name, _, work in choices}[kind]()
        # As a supervisor does: one that was started while its database was away has ended by itself.
        for replica in self._site.replicas:
            replica.start()
        time.sleep(self._dice.uniform(0.05, 0.4))

    def _kill_service(self) -> None:
        replica = self._dice.choice(self._site.replicas)
        replica.kill()
        time.sleep(self._dice.uniform(0.0, 0.3))

    def _stop_service(self) -> None:
        replica = self._dice.choice(self._site.replicas)
        replica.send(signal.SIGSTOP)
        time.sleep(self._dice.uniform(0.05, 1.0))
        replica.send(signal.SIGCONT)

    def _jump(self) -> None:
        """Hours ahead or back, one process alone, so that the others disagree with it."""
        replica = self._dice.choice(self._site.replicas)
        replica.clock.set(self._dice.choice([0, 1, -1]) * self._dice.randint(1, 48 * _HOURS))

    def _fill_disk(self) -> None:
        self._forbid(self._dice.choice(self._site.replicas).processes)

    def _forbid(self, processes: Callable[[], list[int]]) -> None:
        forbid_growth(processes(), forbidden=True)
        time.sleep(self._dice.uniform(0.1, 0.6))
        forbid_growth(processes(), forbidden=False)

    def _fill_database_disk(self) -> None:
        """PostgreSQL refuses to grow a table, or goes down where its log cannot grow."""
        database = self._site.database
        assert database is not None
        assert database.disk is not None
        database.disk.fill()
        time.sleep(self._dice.uniform(0.1, 0.6))
        database.disk.empty()
        database.start()

    def _kill_database(self) -> None:
        assert self._site.database is not None
        self._site.database.kill()
        time.sleep(self._dice.uniform(0.0, 0.3))
        self._site.database.start()

    def _stop_database(self) -> None:
        assert self._site.database is not None
        self._site.database.send(signal.SIGSTOP)
        time.sleep(self._dice.uniform(0.05, 1.0))
        self._site.database.send(signal.SIGCONT)

    def _cut_off(self) -> None:
        link = self._dice.choice(self._site.links)
        self._proxies.call(link.cut_off)
        time.sleep(self._dice.uniform(0.05, 1.0))
        link.down = False


@dataclass(frozen=True)
class Outcome:
    """What a storm left."""

    verdict: Verdict
    history: History
    tally: Tally
    failures: list[str]
    """What the service itself logged as a failure of its own."""


def run_storm(kind: str, seconds: float, seed: int) -> Outcome:
    """Let a storm go over a new site for so long, and judge what it leaves."""
    tally, history = Tally(), History()
    with Proxies() as proxies, site(kind, seed, tally, proxies) as place:
        scenery, over, give_up = Scenery(), threading.Event(), threading.Event()
        callers = [
            Caller(
                place.proxy_port,
                place.target.token,
                Workload(f"caller{number}", scenery, stream(seed, kind, "caller", number)),
                history,
                over,
                give_up,
            )
            for number in range(CALLERS)
        ]
        _ask_through(callers, place, Weather(place, stream(seed, kind, "weather"), tally, proxies), seconds)
        assert not [failure for caller in callers for failure in caller.failure]
        ports = [replica.port for replica in place.replicas]
        look_back(ports, place.target.token, history, stream(seed, kind, "again"))
        actor = place.target.token.split("_")[1]
        verdict = judge(history, actor, load_keys(place.target.key_file).receipt_seed)
        return Outcome(verdict, history, tally, _failures(place))


def _ask_through(callers: list[Caller], place: Site, weather: Weather, seconds: float) -> None:
    """Let all of them ask during the storm, and after it until what is open is answered."""
    threads = [threading.Thread(target=caller.run) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        _blow(place, weather, seconds)
        callers[0].over.set()
        place.heal()
        _join(threads)
    finally:
        callers[0].over.set()
        callers[0].give_up.set()
    for thread in threads:
        thread.join(DRAIN_SECONDS)


def _failures(place: Site) -> list[str]:
    lines = [line for replica in place.replicas for line in replica.log.read_text().splitlines()]
    return [line for line in lines if "unexpected error" in line]


def _blow(place: Site, weather: Weather, seconds: float) -> None:
    assert place.requests is not None
    place.requests.rate = REQUEST_RATE
    for link in place.links:
        link.rate = LINK_RATE
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        weather.strike()


def _join(threads: list[threading.Thread]) -> None:
    end = time.monotonic() + DRAIN_SECONDS
    for thread in threads:
        thread.join(max(0.1, end - time.monotonic()))


def look_back(ports: list[int], token: str, history: History, dice: random.Random) -> None:
    """Ask again for what is kept, refusals first, and read every ledger, from processes in turn."""
    kept = [asked for asked in history.asked if asked.recorded]
    dice.shuffle(kept)
    kept.sort(key=lambda asked: not asked.refused)
    for number, asked in enumerate(kept[:ASKED_AGAIN]):
        asked.answers.append(ask(ports[number % len(ports)], token, asked.request))
    opened = {asked.request.body["name"] for asked in kept if asked.request.path == "/v1/datasets"}  # type: ignore[index]
    for number, name in enumerate(sorted(opened)):
        port = ports[number % len(ports)]
        history.ledgers[name] = entries_of(port, token, name)
        verdict = look(port, token, name, "verification")
        if not verdict["valid"]:
            history.invalid.append(f"{name}: {verdict['problems']}")
    _merge(history)


def _merge(history: History) -> None:
    """A request that was asked again later under its key is one request with more answers."""
    first: dict[str | None, Asked] = {}
    for asked in history.asked:
        known = first.setdefault(asked.request.key, asked)
        if known is not asked:
            known.met += asked.met
            known.answers += asked.answers
    history.asked = [replace(asked) for asked in first.values()]

"""Distributed training on Flower: participants as a ``ClientApp``, the aggregator as a ``ServerApp``.

In the app that SuperLink and SuperNodes run, with ``METHOD`` and ``OBJECTIVE`` the same on both sides::

    # client.py
    def participant(config):                             # the SuperNode's own --node-config
        ledger = Ledger(config["ledger"], token=os.environ["DPLEDGER_TOKEN"])
        X, y = load(config["data"])
        account = ledger.dataset("phones").run("a-ddp-1", partition=config["partition"])
        return LocalParticipant(METHOD, OBJECTIVE, X, y, account, journals=config["journals"])

    app = client_app(participant)

    # server.py
    app = server_app(lambda config: Aggregator(METHOD, np.zeros(4), participants=20), save)

The server sends the iteration and the parameters. A participant sends its noisy update, or one word of why
there is none; what fails at a participant is logged there, because Flower would send the exception's text.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.errors import MissingExtra
from dpledger_client.integrations.aggregator import Aggregator, FederatedResult
from dpledger_client.integrations.participant import Answer, LocalParticipant, Refusal, Update, answer_safely

__all__ = ["client_app", "server_app"]

_TRAIN = "train"
_ARRAYS, _FACTS = "arrays", "facts"
_POLL_SECONDS = 0.25
_ASKED_TIMES = 20
"""A node that stays silent is asked so often in a round."""
Config: TypeAlias = Mapping[str, Any]


def client_app(participant: Callable[[Config], LocalParticipant]) -> Any:
    """The ``ClientApp`` of a participant.

    Parameters
    ----------
    participant
        Makes it from the configuration of its own SuperNode (``--node-config``). The server has no say in it:
        clip, noise, data and token are the participant's. It is called for each round, in whatever process
        Flower runs it.
    """
    flower = _import_flower("flwr.clientapp")
    app = flower.ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        def made() -> LocalParticipant:
            return participant(dict(context.node_config))

        iteration, w = _read_request(message.content)
        return _message(_content_of(answer_safely(made, iteration, w)), reply_to=message)

    return app


def server_app(
    aggregator: Callable[[Config], Aggregator], done: Callable[[FederatedResult], None] = lambda _result: None
) -> Any:
    """The ``ServerApp`` of an aggregator.

    Parameters
    ----------
    aggregator
        Makes it from the run's configuration (``flwr run --run-config``).
    done
        Called with the result, to keep it.

    Notes
    -----
    A participant that comes back has another node id; it is asked for the round at hand like a new one, and
    answers what it answered before. A message ends with its round.
    """
    flower = _import_flower("flwr.serverapp")
    app = flower.ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        connected = _Connected(grid)
        done(aggregator(dict(context.run_config)).train(connected.collect))

    return app


class _Connected:
    """The SuperNodes that are connected, and which of them belong to participants that dropped out."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._names: dict[int, str] = {}

    def collect(self, aggregator: Aggregator, deadline: float) -> None:
        """Ask every node, those too that come while the round lasts, until it is complete.

        Who is silent is asked again: a message may be lost on the way, and a request that comes twice costs
        a participant nothing.
        """
        round_of = _Round(self._grid, aggregator, deadline)
        while not aggregator.complete and time.monotonic() < deadline:
            round_of.ask(
                [n for n in self._grid.get_node_ids() if self._names.get(n) not in aggregator.dropped]
            )
            for node, answer in round_of.answers():
                self._names[node] = answer.participant or self._names.get(node, "")
                aggregator.take(answer, node)
            time.sleep(_POLL_SECONDS)


class _Round:
    """The messages of one round."""

    def __init__(self, grid: Any, aggregator: Aggregator, deadline: float) -> None:
        self._grid = grid
        self._aggregator = aggregator
        self._deadline = deadline
        self._again_seconds = aggregator.deadline_seconds / _ASKED_TIMES
        self._due: dict[int, float] = {}
        """When a node is asked again, by the monotonic clock."""
        self._waiting: set[str] = set()

    def ask(self, nodes: Iterable[int]) -> None:
        """Ask those that were not asked yet, or have been silent for long."""
        now = time.monotonic()
        asked = [node for node in nodes if self._due.get(node, now) <= now]
        if asked and now < self._deadline:
            messages = [self._request(node, self._deadline - now) for node in asked]
            self._due.update(dict.fromkeys(asked, now + self._again_seconds))
            self._waiting.update(each for each in self._grid.push_messages(messages) if each)

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """What has come, by node."""
        replies = self._grid.pull_messages(list(self._waiting)) if self._waiting else []
        for reply in replies:
            self._waiting.discard(reply.metadata.reply_to_message_id)
            if not reply.has_error():  # else the node is gone, or Flower failed on the way
                self._due[reply.metadata.src_node_id] = self._deadline
                yield reply.metadata.src_node_id, _read_answer(reply.content)

    def _request(self, node: int, seconds: float) -> Any:
        asking = self._aggregator
        content = _content({"iteration": asking.iteration}, asking.w)
        return _message(content, node, _TRAIN, ttl=seconds, group_id=str(asking.iteration))


def _content(facts: Mapping[str, Any], array: Floats | None = None) -> Any:
    flower = _import_flower("flwr.app")
    records = {_FACTS: flower.ConfigRecord(dict(facts))}
    if array is not None:
        records[_ARRAYS] = flower.ArrayRecord([array])
    return flower.RecordDict(records)


def _message(*what: Any, **more: Any) -> Any:
    return _import_flower("flwr.app").Message(*what, **more)


def _content_of(answer: Answer) -> Any:
    if isinstance(answer, Update):
        return _content({"participant": answer.participant, "entry": answer.entry}, answer.value)
    facts = {"participant": answer.participant, "reason": answer.reason, "final": answer.final}
    return _content(facts)


def _read_request(content: Any) -> tuple[int, Any]:
    return int(content[_FACTS]["iteration"]), _only_array(content)


def _read_answer(content: Any) -> Answer:
    facts = content[_FACTS]
    if _ARRAYS in content:
        return Update(str(facts["participant"]), _only_array(content), str(facts["entry"]))
    return Refusal(str(facts["participant"]), str(facts["reason"]), bool(facts["final"]))


def _only_array(content: Any) -> Floats:
    [array] = content[_ARRAYS].to_numpy_ndarrays()
    return np.asarray(array, dtype=np.float64)


def _import_flower(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("Flower needs: pip install 'dpledger-client[flower]'") from error

"""Participant processes on Flower's own Fleet API, forked from one that has imported everything.

A ``flower-supernode`` starts a second process beside it and a third for each message, two seconds of work
each; twenty of them take minutes. Here one process is a SuperNode and its ClientApp, and one that ends is
started again. ``python -m tests.client.integrations.flower_nodes ADDRESS CONFIGS`` starts one for each
line of a file of configurations.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_connection import http_request_response

from dpledger_client.integrations.flower import client_app
from tests.client.integrations.flower_training import participant

_PAUSE_SECONDS = 1.0


def serve(address: str, config: dict[str, Any]) -> None:
    """Answer messages until the process that forked this one is gone."""
    app, parent = client_app(participant), os.getppid()
    with http_request_response(address, insecure=True) as connection:
        node, receive, send, _run, _fab, pull, push, confirm = connection
        while os.getppid() == parent:
            received = receive()
            if received is None:
                time.sleep(_PAUSE_SECONDS)
                continue
            run = received[0].metadata.run_id
            message = _pulled(received[1], lambda name, run=run: pull(run, name))
            confirm(run, message.metadata.message_id)
            TaskIdentity.run_id, TaskIdentity.node_id = run, node
            reply = app(message, Context(run, node, config, RecordDict(), {}))
            _push(reply, run, send, push)


def _pulled(tree: Any, pull: Any) -> Message:
    # A message comes before its objects do, and on loopback they are not long in coming.
    names = [each.object_id for each in iterate_object_tree(tree)]
    contents = pull_objects(names, pull, initial_backoff=0.2, backoff_cap=1.0)
    message = inflate_object_from_contents(tree.object_id, contents)
    assert isinstance(message, Message)
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _push(reply: Any, run: int, send: Any, push: Any) -> None:
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        objects = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
        wanted, session = send(reply, get_object_tree(reply), 0.0)
    for name in wanted:
        push(run, session, name, objects[name])


def _fork(address: str, config: dict[str, Any]) -> int:
    process = os.fork()
    if process == 0:
        folder = Path(config["folder"])
        with (folder / "log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        (folder / "pid").write_text(str(os.getpid()))
        try:
            serve(address, config)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
    return process


def main(address: str, configs: str) -> None:
    # A child must not see a parent's exit handlers: it leaves by os._exit.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    started = [json.loads(line) for line in Path(configs).read_text().splitlines()]
    running = {_fork(address, config): config for config in started}
    while running:
        config = running.pop(os.wait()[0])
        running[_fork(address, config)] = config


if __name__ == "__main__":
    main(*sys.argv[1:])

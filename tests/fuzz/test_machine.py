from pathlib import Path
from random import Random

import hypothesis

from tests.api.service import running
from tests.fuzz.judge import Judge
from tests.fuzz.machine import machine_over
from tests.fuzz.run import Findings, Sender


def test_walk(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json") as service:
        description = service.app.openapi()
        findings = Findings()
        sender = Sender(service.client, Judge(description), findings)
        machine = machine_over(sender, description, service.token, Random(7), lambda: False)
        settings = hypothesis.settings(max_examples=20, stateful_step_count=20, deadline=None, database=None,
            suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate])
        hypothesis.seed(7)(machine)
        machine.run(settings=settings)
        print(findings.statuses, findings.requests)
        assert findings.hold

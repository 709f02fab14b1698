"""What the documentation shows is run, as its reader would."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nemo_run.testing import LocalKube

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
TRAIN = "import os, sys\nprint('rank', os.environ.get('RANK', '-'), sys.argv[1:])\n"
"""As the pages show it that speak of running one."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
"""A snippet that begins with a file's name is what the reader writes to that file."""
COMMAND = re.compile(r"^python (.*)$", re.MULTILINE)
SHOWN = re.compile(
    r"^ *(?:print|run\.run|experiment\.run|experiment\.status|fdl\.build|job\.start|job\.logs)\(.*\)  # (.+)$",
    re.MULTILINE,
)
"""What a snippet says that a line of it prints."""


def blocks(path, language):
    return [text for name, text in FENCE.findall(path.read_text()) if name == language]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Stand where a reader stands: in a directory with a train.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("train.py").write_text(TRAIN)
    return tmp_path


def python(*arguments):
    """Run Python as a reader does, and give what it prints."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def follow(guide):
    """Write the guide's files, run its commands, then its other snippets as one script; give what all of it prints."""
    printed = []
    script = []
    for language, text in FENCE.findall(guide.read_text()):
        if language == "sh":
            printed += [python(*shlex.split(command)) for command in COMMAND.findall(text)]
        elif language == "python" and (name := FILE.match(text)):
            Path(name[1]).write_text(text)
        elif language == "python":
            script.append(text)
    if script:
        Path("guide.py").write_text("\n".join(script))
        printed.append(python("guide.py"))
    return "".join(printed)


def test_the_readme_s_example_runs_as_the_readme_says(here):
    for code in blocks(ROOT / "README.md", "python"):
        Path(FILE.match(code)[1]).write_text(code)
    printed = python("-m", "nemo_run.testing", "launch.py")
    assert "rank 0 ['--steps', '100']" in printed
    assert "SUCCEEDED" in printed


@pytest.mark.parametrize("guide", [path for path in GUIDES if blocks(path, "python")], ids=lambda path: path.stem)
def test_a_guide_does_what_it_says_top_to_bottom(guide, here):
    with LocalKube(kuberay="1.7") as kube:
        printed = follow(guide)
        asked = {rule for request in kube.requests if (rule := needed(request))}
    assert asked <= granted(guide)
    said = [text for block in blocks(guide, "python") for text in SHOWN.findall(block)]
    rest = printed
    for text in said:
        _, found, rest = rest.partition(text)
        assert found, f"{text}\n\nis not printed, or not in its place, in:\n\n{printed}"
    if "FAILED" not in "".join(said):
        assert "FAILED" not in printed


@pytest.mark.parametrize("guide", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDES], ids=lambda path: path.name)
def test_links_lead_somewhere(guide):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", guide.read_text()):
        page = guide.parent / target if target else guide
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


def anchors(page):
    """Give the names that GitHub has for the page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(FENCE, "", page.read_text()), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


ROLES = {"kubeflow": ["kubeflow"], "kuberay": ["kuberay"], "ray": ["kuberay"]}
"""On whose page is the Role that what a guide does needs; all other guides may need both."""


def granted(guide):
    """Give what the documented Roles allow: a reader who has them can follow the guide."""
    pages = [ROOT / f"docs/guides/executors/{name}.md" for name in ROLES.get(guide.stem, ["kubeflow", "kuberay"])]
    return {
        (group, resource, verb)
        for page in pages
        for text in blocks(page, "yaml")
        for document in yaml.safe_load_all(text)
        for rule in document.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


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

"""Directory names out of templates."""

from pathlib import PurePosixPath

import pytest

from nemo_run._kube.segments import render, safe_segment
from nemo_run.exceptions import ConfigError

VALUES = {"user": "alice", "experiment_id": "exp_1", "job_name": "train", "workdir": "src"}


@pytest.mark.parametrize(
    "text",
    ["alice", "alice@corp", "a b", "é", "-rf", "...", "a..b", "x" * 200, "C:\\temp", "$HOME", "{user}"],
)
def test_what_can_stand_in_a_directory_name_stays(text):
    assert safe_segment(text) == text


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        pytest.param("a/b", "a-b-c14cdd", id="slash"),
        pytest.param("/", "--8a5eda", id="only-a-slash"),
        pytest.param("a\0b", "a-b-59b271", id="nul"),
        pytest.param("a\nb", "a-b-7e18f7", id="newline"),
        pytest.param("../../etc", "..-..-etc-74ccf3", id="climbing"),
        pytest.param("a\u2028b", "a-b-fe2d3b", id="line-separator"),
    ],
)
def test_what_cannot_is_replaced_and_marked(text, segment):
    assert safe_segment(text) == segment


def test_two_users_never_meet_in_one_directory():
    names = ["a/b", "a-b", "a\0b", "a\nb", "a\\b", "a b"]
    assert len({safe_segment(name) for name in names}) == len(names)


def test_half_a_surrogate_pair_is_replaced():
    """A name that is no text (os.fsdecode of other bytes) can be written to no manifest."""
    assert safe_segment("a\udce9").startswith("a--")
    assert safe_segment("a\ud800").isascii()


@pytest.mark.parametrize("text", ["é" * 200, "x" * 5000])
def test_a_long_name_is_cut_to_what_file_systems_take(text):
    assert len(safe_segment(text).encode()) <= 200
    assert safe_segment(text) != safe_segment(text + "x")


@pytest.mark.parametrize("text", [".", ".."])
def test_a_value_that_names_another_directory_is_refused(text):
    with pytest.raises(ConfigError, match=r"may not be '\.' or '\.\.'"):
        safe_segment(text)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        pytest.param("{user}/{experiment_id}/{job_name}/code", "alice/exp_1/train/code", id="kubeflow-default"),
        pytest.param("{user}/code/{workdir}", "alice/code/src", id="kuberay-default"),
        pytest.param("", ".", id="the-mount-itself"),
        pytest.param(".", ".", id="a-dot-is-the-mount-itself"),
        pytest.param("code", "code", id="literal"),
        pytest.param("a//b/./c/", "a/b/c", id="normalised"),
        pytest.param("run-{experiment_id}-{job_name}", "run-exp_1-train", id="several-in-a-segment"),
        pytest.param("{{{user}}}/{{x}}", "{alice}/{x}", id="doubled-braces"),
        pytest.param("…/é", "…/é", id="unicode"),
    ],
)
def test_a_template_is_filled_in(template, path):
    assert render(template, VALUES) == PurePosixPath(path)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        pytest.param("{user}/{experiment_id}/{job_name}/code", "alice/code", id="whole-segments"),
        pytest.param("{user}/run-{experiment_id}-x/code", "alice/code", id="the-text-around-it-too"),
        pytest.param("{user}/{experiment_id}{user}/code", "alice/code", id="what-follows-too"),
        pytest.param("{experiment_id}", ".", id="nothing-left"),
    ],
)
@pytest.mark.parametrize(
    "missing", [{}, {"experiment_id": None}, {"experiment_id": ""}], ids=["absent", "None", "empty"]
)
def test_a_placeholder_without_a_value_takes_its_segment_with_it(template, path, missing):
    assert render(template, {"user": "alice", **missing}) == PurePosixPath(path)


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        pytest.param("/abs", "leading '/'", id="absolute"),
        pytest.param("a/../b", "remove '..'", id="climbing"),
        pytest.param("..", "remove '..'", id="only-climbing"),
        pytest.param("a\nb", "control characters", id="newline"),
        pytest.param("a\0b", "control characters", id="nul"),
        pytest.param("{nope}", "allowed are {user}, {experiment_id}, {job_name}, {workdir}", id="unknown-name"),
        pytest.param("{user.name}", "allowed are {user}", id="attribute"),
        pytest.param("{user[0]}", "allowed are {user}", id="index"),
        pytest.param("{user:>10}", "allowed are {user}", id="format-spec"),
        pytest.param("{user!r}", "allowed are {user}", id="conversion"),
        pytest.param("{}", "allowed are {user}", id="nameless"),
        pytest.param("{0}", "allowed are {user}", id="number"),
        pytest.param("{ user }", "allowed are {user}", id="spaces"),
        pytest.param("{user", "expected '}'", id="open-brace"),
        pytest.param("user}", "write '{{' and '}}'", id="closing-brace"),
        pytest.param(7, "write a string such as", id="no-text"),
    ],
)
def test_a_bad_template_is_refused(template, hint):
    """The message names the argument, shows the template and says what to write."""
    with pytest.raises(ConfigError) as caught:
        render(template, VALUES)
    assert (caught.value.argument, caught.value.value) == ("code_subpath", template)
    assert hint in str(caught.value)


@pytest.mark.parametrize("template", ["{user}{job_name}", ".{user}", "a/{user}/b"])
def test_a_value_cannot_make_a_segment_that_climbs(template):
    with pytest.raises(ConfigError, match="may not be"):
        render(template, {"user": ".", "job_name": "."})

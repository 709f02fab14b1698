"""A container's variables, and the kubelet's rewriting of them."""

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run._kube.manifests.env import literal, literal_env, merge_env
from nemo_run.exceptions import ConfigError

SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def kubelet(text, variables):
    """Rewrite as the kubelet does (third_party/forked/golang/expansion): ``$$`` is ``$``, known ``$(NAME)`` expands."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda match: "$" if match.group() == "$$" else variables.get(match.group(1), match.group()),
        text,
    )


@pytest.mark.parametrize(
    ("lists", "merged"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [[{"name": "B", "value": "1"}, {"name": "A", "value": "1"}], [{"name": "B", "value": "2"}]],
            [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
            id="later-wins-in-the-first-place",
        ),
        pytest.param([[{"name": "TOKEN", "value": "x"}], [SECRET]], [SECRET], id="secret-wins"),
        pytest.param(
            [[SECRET], [{"name": "TOKEN", "value": "x"}]], [{"name": "TOKEN", "value": "x"}], id="plain-value-wins"
        ),
        pytest.param(
            [[{"name": "A", "value": 3}, {"name": "B", "value": 0.5}]],
            [{"name": "A", "value": "3"}, {"name": "B", "value": "0.5"}],
            id="numbers-become-text",
        ),
        pytest.param([[{"name": "A", "value": None}]], [], id="none-is-not-set"),
        pytest.param([[{"name": "A", "value": "1"}], [{"name": "A", "value": None}]], [], id="none-takes-it-back"),
        pytest.param([[{"name": "A"}]], [{"name": "A", "value": ""}], id="no-value-is-empty-text"),
        pytest.param([[{"name": "A", "value": "", "valueFrom": None}]], [{"name": "A", "value": ""}], id="empty-text"),
        pytest.param([[{"name": "a.b-C", "value": "é\n'"}]], [{"name": "a.b-C", "value": "é\n'"}], id="odd-but-legal"),
    ],
)
def test_one_name_has_one_entry(lists, merged):
    before = copy.deepcopy(lists)
    assert merge_env(*lists) == merged
    assert lists == before


def test_what_it_gives_is_new():
    merge_env([SECRET])[0]["valueFrom"]["secretKeyRef"]["name"] = "other"
    assert SECRET["valueFrom"]["secretKeyRef"]["name"] == "s"


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_refused(value):
    """Python would write True, which no shell script means."""
    with pytest.raises(ConfigError, match="write the text itself, such as '1' or 'true'") as caught:
        merge_env([{"name": "A", "value": value}], argument="env_vars")
    assert caught.value.argument == "env_vars['A']"


@pytest.mark.parametrize("value", [["x"], {"x": 1}, b"x", object()], ids=["list", "dict", "bytes", "object"])
def test_a_value_that_is_no_text_is_refused_without_showing_it(value):
    with pytest.raises(ConfigError, match="write a text, a number, or None") as caught:
        merge_env([{"name": "A", "value": value}])
    assert caught.value.value == type(value).__name__


@pytest.mark.parametrize("name", ["", "A=B", "A\n", "A\0", 1, None], ids=repr)
def test_a_name_that_no_process_can_have_is_refused(name):
    with pytest.raises(ConfigError, match="the name of a variable is text without '='"):
        merge_env([{"name": name, "value": "x"}])


@pytest.mark.parametrize("entry", ["A=1", {}, {"value": "1"}], ids=["text", "empty", "nameless"])
def test_an_entry_that_is_no_variable_is_refused(entry):
    with pytest.raises(ConfigError, match="each entry is an EnvVar") as caught:
        merge_env([entry])
    assert caught.value.argument == "env_list"


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain", "plain"),
        ("$X", "$$X"),
        ("$$", "$$$$"),
        ("$(X)", "$$(X)"),
        ("$(KNOWN)", "$(KNOWN)"),
        ("a$(KNOWN)b$(X)$", "a$(KNOWN)b$$(X)$$"),
        ("$$(KNOWN)", "$$$$(KNOWN)"),
        ("$$$(KNOWN)", "$$$$$(KNOWN)"),
        ("$(", "$$("),
        ("$()", "$$()"),
    ],
)
def test_dollars_are_doubled_but_in_references(text, sent):
    assert literal(text, references=["KNOWN"]) == sent


@given(st.text("$()AB{} x\\'\"`", max_size=20))
def test_text_is_the_same_again_behind_the_kubelet(text):
    assert kubelet(literal(text), {"A": "expanded", "B": "expanded", "": "expanded"}) == text


def test_variables_may_refer_to_one_another():
    entries = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A) $(C) $A"},
        SECRET,
        {"name": "D", "value": "$(TOKEN)"},
    ]
    before = copy.deepcopy(entries)
    assert literal_env(entries) == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A) $$(C) $$A"},
        SECRET,
        {"name": "D", "value": "$(TOKEN)"},
    ]
    assert entries == before

"""Environment variables: merged by name, refused where they would not arrive, doubled for the kubelet."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import ConfigError


def env_of(executor: KubeflowExecutor) -> list[dict[str, Any]]:
    return executor.get_job_body("n", ["true"])["spec"]["trainer"].get("env", [])


def script_of(executor: KubeflowExecutor) -> str:
    return executor.get_job_body("n", ["true"])["spec"]["trainer"]["command"][2].replace("$$", "$")


def kubelet(entries: list[dict[str, Any]]) -> dict[str, str]:
    """Expand as the kubelet does: ``$$`` is ``$``, ``$(NAME)`` an earlier variable (expansion.go)."""
    known: dict[str, str] = {}
    for entry in entries:
        text, out, at = entry["value"], "", 0
        while at < len(text):
            end = text.find(")", at)
            if text.startswith("$$", at):
                out, at = out + "$", at + 2
            elif text.startswith("$(", at) and end > 0 and text[at + 2 : end] in known:
                out, at = out + known[text[at + 2 : end]], end + 1
            else:
                out, at = out + text[at], at + 1
        known[entry["name"]] = out
    return known


def test_the_later_value_wins_and_the_first_place_stays():
    executor = KubeflowExecutor(
        env_vars={"A": "1", "B": "1", "C": "1"},
        env_list=[
            {"name": "A", "value": "3"},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    )
    executor._task_env.update({"B": "2", "E": "2"})
    assert env_of(executor) == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "1"},
        {"name": "E", "value": "2"},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def test_variables_of_a_trainer_that_is_passed_through_are_merged_too():
    executor = KubeflowExecutor(
        env_vars={"A": "1", "B": "1"},
        spec_kwargs={"trainer": {"env": [{"name": "B", "value": "2"}, {"name": "C", "value": "$2"}], "image": "i"}},
        container_kwargs={"env": [{"name": "A", "value": "3"}]},
    )
    trainer = executor.get_job_body("n", ["true"])["spec"]["trainer"]
    assert trainer["image"] == "i"
    assert trainer["env"] == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "$$2"},
    ]


def test_none_leaves_out_and_numbers_become_text():
    executor = KubeflowExecutor(
        env_vars={"A": None, "B": 3, "C": 0.5, "D": "x"}, env_list=[{"name": "D", "value": None}]
    )
    assert env_of(executor) == [{"name": "B", "value": "3"}, {"name": "C", "value": "0.5"}]


FIELDS = [
    pytest.param(lambda name, value: {"env_vars": {name: value}}, "env_vars", id="env_vars"),
    pytest.param(lambda name, value: {"env_list": [{"name": name, "value": value}]}, "env_list", id="env_list"),
    pytest.param(lambda name, value: {"_task_env": {name: value}}, "Script.env", id="Script.env"),
    pytest.param(
        lambda name, value: {"container_kwargs": {"env": [{"name": name, "value": value}]}},
        "container_kwargs['env']",
        id="container_kwargs",
    ),
]


@pytest.mark.parametrize(("fields", "argument"), FIELDS)
@pytest.mark.parametrize(
    ("name", "value", "key"), [("A", True, "['A']"), ("A", ["x"], "['A']"), ("PET_NNODES", "4", ""), ("A", "\0", "")]
)
def test_a_refusal_names_where_the_value_came_from(fields, argument, name, value, key):
    executor = KubeflowExecutor()
    for field, content in fields(name, value).items():
        setattr(executor, field, content)
    with pytest.raises(ConfigError) as caught:
        env_of(executor)
    assert caught.value.argument == f"{argument}{key}"


@pytest.mark.parametrize("fields", [{"env_vars": {"A": True}}, {"env_list": [{"name": "A", "value": False}]}])
def test_a_boolean_is_refused(fields):
    with pytest.raises(ConfigError, match="'1' or 'true'"):
        env_of(KubeflowExecutor(**fields))


SOURCE = {"secretKeyRef": {"name": "s", "key": "k"}}


@pytest.mark.parametrize(
    ("entry", "where", "field", "instead"),
    [
        ({"name": "W", "value_from": SOURCE}, "env_list['W']", "value_from", "write 'valueFrom'"),
        ({"name": "W", "valueform": SOURCE}, "env_list['W']", "valueform", "write 'valueFrom'"),
        ({"name": "W", "secret": SOURCE}, "env_list['W']", "secret", "it has name, value, valueFrom"),
        (
            {"name": "W", "valueFrom": {"secret_key_ref": SOURCE["secretKeyRef"]}},
            "env_list['W']['valueFrom']",
            "secret_key_ref",
            "write 'secretKeyRef'",
        ),
        ({"name": "W", "valueFrom": "s"}, "env_list['W']['valueFrom']", "s", "write where the value comes from"),
    ],
    ids=["snake case", "a slip", "unlike any", "its source", "a text"],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda entries: env_of(KubeflowExecutor(env_list=entries)),
        lambda entries: KubeRayExecutor(image="ray", env_list=entries).get_cluster_body("ray"),
    ],
    ids=["kubeflow", "kuberay"],
)
def test_a_misspelt_field_does_not_leave_a_variable_empty(build, entry, where, field, instead):
    with pytest.raises(ConfigError) as caught:
        build([entry])
    assert (caught.value.argument, caught.value.value) == (where, field)
    assert instead in caught.value.hint


@pytest.mark.parametrize(
    "source", ["secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef"], ids=str
)
def test_a_variable_may_have_any_source_of_kubernetes(source):
    entry = {"name": "W", "valueFrom": {source: {"key": "k"}}}
    assert env_of(KubeflowExecutor(env_list=[entry])) == [entry]


def test_a_field_without_a_value_loses_nothing():
    entry = {"name": "W", "value": "1", "value_from": None}
    assert env_of(KubeflowExecutor(env_list=[entry])) == [{"name": "W", "value": "1"}]


@pytest.mark.parametrize(
    "name", ["PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"]
)
def test_what_trainer_sets_itself_is_refused_for_torch_runtimes(name):
    with pytest.raises(ConfigError, match="Trainer sets this variable itself"):
        env_of(KubeflowExecutor(env_vars={name: "2"}))
    assert env_of(KubeflowExecutor(runtime_ref="deepspeed-distributed", env_vars={name: "2"}))
    assert env_of(KubeflowExecutor(env_vars={"PET_MAX_RESTARTS": "2"}))


@pytest.mark.parametrize("env_vars", [{"": "1"}, {"A=B": "1"}, {"A": "x\0"}, {"A": "\udcff"}, {"A": ["x"]}])
def test_what_no_variable_can_carry_is_refused(env_vars):
    with pytest.raises(ConfigError):
        env_of(KubeflowExecutor(env_vars=env_vars))


VALUES = [
    "a b",
    "it's",
    '"q"',
    "$X",
    "${LIB}",
    "$$",
    "$$$",
    "$(X)",
    "$$(X)",
    "$$(A)",
    "`id`",
    "l1\nl2\n",
    "",
    "é",
    "$",
    "a$",
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_survives_the_kubelet(value):
    entries = env_of(KubeflowExecutor(env_vars={"A": value}))
    assert kubelet(entries) == {"A": value}


def test_a_reference_to_a_variable_of_ours_stays_kubernetes_reference():
    executor = KubeflowExecutor(env_vars={"HOST": "h", "URL": "http://$(HOST):$(PORT)/$HOST"})
    assert kubelet(env_of(executor)) == {"HOST": "h", "URL": "http://h:$(PORT)/$HOST"}


@pytest.mark.parametrize("value", ["/x:$PYTHONPATH", "/x:${PYTHONPATH}"])
@pytest.mark.parametrize("where", ["env_vars", "task", "env_list", "container_kwargs"])
def test_a_value_that_extends_itself_is_left_to_the_shell(value, where):
    entry = {"name": "PYTHONPATH", "value": value}
    executor = KubeflowExecutor(
        env_vars={"PYTHONPATH": value} if where == "env_vars" else {},
        env_list=[entry] if where == "env_list" else [],
        container_kwargs={"env": [entry]} if where == "container_kwargs" else {},
    )
    executor._task_env.update({"PYTHONPATH": value} if where == "task" else {})
    assert env_of(executor) == []
    assert 'export PYTHONPATH="/x:${PYTHONPATH-}"\n' in script_of(executor)


def test_two_dollars_before_a_parenthesis_are_text():
    """Kubernetes would make one of them; values arrive as they were written."""
    assert kubelet(env_of(KubeflowExecutor(env_vars={"B": "b", "E": "$$(B)"}))) == {"B": "b", "E": "$$(B)"}


def exported(executor: KubeflowExecutor, image: dict[str, str], *names: str) -> list[str]:
    """Give the variables as a process sees them that kubelet and launch script prepare an environment for."""
    environ = {"PATH": "/usr/bin:/bin", **image, **kubelet(env_of(executor))}
    code = f"import os, sys; sys.stdout.write('\\n'.join(os.environ.get(name, '-') for name in {names}))"
    script = executor.get_job_body("n", [sys.executable, "-c", code])["spec"]["trainer"]["command"][2]
    done = subprocess.run(
        ["bash", "-c", script.replace("$$", "$")], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split("\n")


def test_an_exported_value_refers_to_variables_of_ours():
    executor = KubeflowExecutor(env_vars={"BASE": "/b", "P": "$(BASE)/x:$P", "C": "$(P)/y", "D": "$(C)|$(NO)|$$(P)"})
    seen = exported(executor, {"P": "/image"}, "P", "C", "D")
    assert seen == ["/b/x:/image", "/b/x:/image/y", "/b/x:/image/y|$(NO)|$$(P)"]
    assert env_of(executor) == [{"name": "BASE", "value": "/b"}]


def test_a_later_layer_extends_what_an_earlier_one_says():
    executor = KubeflowExecutor(
        env_vars={"P": "/vars", "Q": "/vars:$Q", "R": "/vars"},
        env_list=[{"name": "P", "value": "/list:$(P)"}, {"name": "R", "value": "/list"}],
    )
    executor._task_env.update({"P": "/script:$P", "Q": "/script:${Q}", "R": "/script:$R"})
    seen = exported(executor, {"P": "/image", "Q": "/image", "R": "/image"}, "P", "Q", "R")
    assert seen == ["/list:/script:/vars", "/script:/vars:/image", "/list"]


def test_a_secret_of_kubernetes_can_be_extended():
    secret = {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    executor = KubeflowExecutor(env_list=[secret, {"name": "P", "value": "/x:$P"}])
    assert env_of(executor) == [secret]
    assert 'export P="/x:${P-}"\n' in script_of(executor)


@pytest.mark.parametrize("name", ["MY-NAME", "my.name", "1X"])
def test_a_name_that_no_shell_can_have_is_kubernetes_alone(name):
    """Kubernetes takes such names, and bash passes them on; ``export`` refuses them."""
    value = f"${name}:${{{name}}}"
    executor = KubeflowExecutor(env_vars={name: value})
    assert kubelet(env_of(executor)) == {name: value}
    assert "export " + name not in script_of(executor)


@pytest.mark.parametrize("value", ["$PYTHONPATHS", "$$PYTHONPATH", "\\$PYTHON", "$(PYTHONPATH)", "PYTHONPATH"])
def test_a_value_that_only_looks_so_is_text(value):
    executor = KubeflowExecutor(env_vars={"PYTHONPATH": value})
    assert kubelet(env_of(executor)) == {"PYTHONPATH": value}


def test_the_script_holds_no_value_but_those():
    executor = KubeflowExecutor(env_vars={"HF_TOKEN": "hf_secret", "P": "/x:$P"})
    script = script_of(executor)
    assert "hf_secret" not in script
    assert "HF_TOKEN" not in script

"""Secrets never show in what nemo_run prints."""

from __future__ import annotations

import json
import re

import pytest

from nemo_run.core._masking import MASK, is_secret, masked
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "hf-token", "TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "WANDB_API_KEY", "wandb_key",
        "--api-key", "MYSQL_PASSWD", "GOOGLE_CREDENTIALS", "NGC_APIKEY", "client_secret", "REGISTRY_AUTH",
    ],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret(name.lstrip("-"))


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM", "MONKEY", "KEYBOARD", "PATH", "MAX_TOKENS", "key", "secretKeyRef", "topologyKey",
        "secretName", "imagePullSecrets", "--tokenizer", "AUTHOR",
    ],
)  # fmt: skip
def test_names_of_other_things(name):
    assert not is_secret(name.lstrip("-"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"HF_TOKEN": "hf_abc", "A": "1"}, {"HF_TOKEN": MASK, "A": "1"}),
        ({"name": "HF_TOKEN", "value": "hf_abc"}, {"name": "HF_TOKEN", "value": MASK}),
        (
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        ),
        ({"tolerations": [{"key": "nvidia.com/gpu"}]}, {"tolerations": [{"key": "nvidia.com/gpu"}]}),
        (["--api-key", "k123", "--steps", "3"], ["--api-key", MASK, "--steps", "3"]),
        (["--api-key=k123", "x"], [f"--api-key={MASK}", "x"]),
        (("a", 1, None, True), ("a", 1, None, True)),
        ({"HF_TOKEN": None, "API_KEY": True, "KEY": ""}, {"HF_TOKEN": None, "API_KEY": True, "KEY": ""}),
        ("export HF_TOKEN=hf_abc A=1", f"export HF_TOKEN={MASK} A=1"),
        ("exec python x.py --hf_token 'a b' --n 3", f"exec python x.py --hf_token '{MASK}' --n 3"),
        ('{"password": "p q", "n": 1}', f'{{"password": "{MASK}", "n": 1}}'),
        ("env_vars:\n  HF_TOKEN: abc\n", f"env_vars:\n  HF_TOKEN: {MASK}\n"),
        ("PASSWORD: abc\nname: x\n", f"PASSWORD: {MASK}\nname: x\n"),
        ("seen in passing: known-value!", f"seen in passing: {MASK}!"),
    ],
)
def test_masking(value, expected):
    assert masked(value, secrets=["known-value", ""]) == expected


def test_masking_changes_no_input():
    value = {"env": [{"name": "A_TOKEN", "value": "x"}]}
    masked(value)
    assert value == {"env": [{"name": "A_TOKEN", "value": "x"}]}


def test_no_secret_value_shows_in_what_an_executor_prints():
    secret = "hf_very$ it's secret"
    executor = KubeflowExecutor(
        env_vars={"HF_TOKEN": secret, "NOTE": f"inside {secret}"},
        env_list=[{"name": "WANDB_API_KEY", "value": "wandb-123456"}],
    )
    executor._task_env["DB_PASSWORD"] = "pass-123456"
    command = ["curl", "-H", f"Authorization: {secret}", "--token", "tok-1234", "--password=pw-1"]
    body = executor.get_job_body("n", command)
    shown = repr(executor) + repr(masked(body, secrets=executor.secret_values()))
    for value in (secret, secret.replace("$", "$$"), "s secret", "wandb-123456", "pass-123456", "tok-1234", "pw-1"):
        assert value not in shown
    assert secret.replace("$", "$$") in repr(body)


TRICKY = "p\"q\\w'x\ny$<é>"


@pytest.mark.parametrize(
    "shown",
    [
        TRICKY,
        json.dumps(TRICKY),
        json.dumps(TRICKY, ensure_ascii=False),
        json.dumps(TRICKY, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e"),
        json.dumps(f"export A={TRICKY.replace('$', '$$')}"),
        repr(TRICKY),
    ],
    ids=["plain", "ascii", "go", "go-json", "script", "python"],
)
@pytest.mark.parametrize("where", ["env_vars", "env_list", "container_kwargs"])
def test_a_secret_does_not_show_however_a_server_quotes_it(shown, where):
    entry = {"name": "DB_PASSWORD", "value": TRICKY}
    executor = KubeflowExecutor(
        env_vars={"DB_PASSWORD": TRICKY} if where == "env_vars" else {},
        env_list=[entry] if where == "env_list" else [],
        container_kwargs={"env": [entry]} if where == "container_kwargs" else {},
    )
    seen = masked(f"Invalid value: {shown}: too odd", secrets=executor.secret_values())
    assert re.sub(r"export A=|[\"']", "", seen) == f"Invalid value: {MASK}: too odd"


def test_a_line_of_a_secret_does_not_show():
    executor = KubeflowExecutor(
        env_vars={"SSH_KEY": "-----BEGIN KEY-----\n  MIIEvQIBADANBg\n-----END KEY-----\nshort\n"}
    )
    seen = masked("a short word; line 2: MIIEvQIBADANBg", secrets=executor.secret_values())
    assert seen == f"a short word; line 2: {MASK}"


def test_a_short_secret_does_not_show_where_it_is_quoted():
    """Elsewhere three letters may be anything."""
    executor = KubeflowExecutor(env_vars={"DB_PASSWORD": "main", "A_TOKEN": "x"})
    secrets = executor.secret_values()
    assert masked('container main: Invalid value: "main"', secrets=secrets) == f"container main: Invalid value: {MASK}"
    assert masked('"x" in x', secrets=secrets) == '"x" in x'


def test_environment_fields_may_be_none():
    assert KubeflowExecutor(env_vars=None, env_list=None, container_kwargs=None).secret_values() == []


def test_long_words_take_no_longer_than_they_must():
    """At each letter of a word a search would begin anew: 300,000 of them took minutes."""
    text = "echo " + "x" * 300_000 + " --token hf_abc 2FA_TOKEN=x"
    assert masked(text) == "echo " + "x" * 300_000 + " --token *** 2FA_TOKEN=***"


@pytest.mark.parametrize("kind", [LocalExecutor, KubeflowExecutor, KubeRayExecutor])
def test_no_executor_prints_secrets(kind):
    executor = kind(env_vars={"API_TOKEN": "hunter2", "PLAIN": "seen"})
    assert "hunter2" not in f"{executor!r} {executor}"
    assert "'PLAIN': 'seen'" in repr(executor)


@pytest.mark.parametrize("field", ["env_vars", "env_list"])
@pytest.mark.parametrize("given", ["A=hunter2", [("A", "hunter2")], [{"nme": "A", "value": "hunter2"}]], ids=str)
def test_what_is_wrong_with_an_environment_is_said_without_its_values(field, given, tmp_path):
    executor = KubeflowExecutor(image="python:3.12", **{field: given})
    executor.assign("exp_1", str(tmp_path), "train", "train")
    with pytest.raises(ConfigError, match=field) as raised:
        executor.materialize_launch_script(["true"])
    assert "hunter2" not in str(raised.value)

"""Configs as text and back, upstream's files among them."""

from __future__ import annotations

import enum
import math
import pathlib
import pkgutil
import socket
from collections import Counter, OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fiddle as fdl
import pytest
from fiddle._src.experimental import serialization as fiddle_json

import nemo_run as run
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError

UPSTREAM = Path(__file__).parent.parent / "fixtures" / "upstream"


class Color(enum.Enum):
    RED = 1


class Stopped:
    """Stands for ``torch.dtype``: an object whose text is the name it is imported by."""

    def __repr__(self) -> str:
        return f"{__name__}.stopped"


stopped = Stopped()


def task(*args: Any, **options: Any) -> None:
    """Stand for a user's task."""


VALUES = {
    "zero": 0,
    "false": False,
    "none": None,
    "text": "é\n$X",
    "float": 0.5,
    "list": [0, "", [None]],
    "dict": {"a": {"b": []}},
    "set": {1, 2},
    "path": pathlib.Path("/a/b"),
    "pure": pathlib.PurePosixPath("c"),
    "enum": Color.RED,
    "int enum": socket.AF_INET,
    "function": task,
    "class": Color,
    "constant": stopped,
    "builtin": math.sqrt,
    "nested": [{"p": pathlib.Path("x"), "c": Color.RED}],
    "config": run.Config(run.Script, path="a.sh", args=[]),
    "partial": run.Partial(task, 0, x=""),
}


@pytest.mark.parametrize("serializer", [ZlibJSONSerializer(), YamlSerializer()], ids=["json", "yaml"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_value_comes_back(serializer: Any, value: Any) -> None:
    for cfg in (run.Partial(task, option=value), run.Config(task, value)):
        back = serializer.deserialize(serializer.serialize(cfg))
        assert (type(back), back) == (type(cfg), cfg)


@pytest.mark.parametrize("value", [b"\x00\xff", (1, (2,)), frozenset({1})], ids=["bytes", "tuple", "frozenset"])
def test_json_keeps_what_yaml_does_not_tell_apart(value: Any) -> None:
    serializer = ZlibJSONSerializer()
    assert serializer.deserialize(serializer.serialize(run.Partial(task, x=value))).x == value


@pytest.mark.parametrize("serializer", [ZlibJSONSerializer(), YamlSerializer()], ids=["json", "yaml"])
@pytest.mark.parametrize("value", [object(), lambda: 0, [].append], ids=["object", "lambda", "bound"])
def test_what_cannot_be_written_is_named_with_its_place(serializer: Any, value: Any) -> None:
    cfg = run.Partial(task, tok={"q": [0, value]})
    with pytest.raises(ConfigError) as caught:
        serializer.serialize(cfg)
    assert (caught.value.argument, caught.value.value) == ("tok['q'][1]", value)


def test_values_are_built_by_a_reader_without_us() -> None:
    """An image with NeMo-Run knows nothing of our conversions: fiddle alone builds paths and constants."""
    import base64
    import zlib

    text = ZlibJSONSerializer().serialize(run.Config(dict, p=pathlib.Path("/a"), c=stopped, e=Color.RED))
    plain = fiddle_json.load_json(zlib.decompress(base64.urlsafe_b64decode(text)).decode())
    assert fdl.build(plain) == {"p": pathlib.Path("/a"), "c": stopped, "e": Color.RED}


def test_paths_from_python_3_13_are_built_by_other_pythons() -> None:
    """3.13 defines them in ``pathlib._local``, which is nowhere else."""
    import base64
    import zlib

    def changed(text: str, old: str, new: str) -> str:
        plain = zlib.decompress(base64.urlsafe_b64decode(text)).decode().replace(old, new)
        return base64.urlsafe_b64encode(zlib.compress(plain.encode())).decode()

    cfg = run.Config(dict, p=pathlib.Path("/a"))
    text = ZlibJSONSerializer().serialize(cfg)
    assert "pathlib._local" not in zlib.decompress(base64.urlsafe_b64decode(text)).decode()
    assert ZlibJSONSerializer().deserialize(changed(text, '"pathlib"', '"pathlib._local"')) == cfg


def test_users_own_path_configs_stay_configs() -> None:
    serializer = ZlibJSONSerializer()
    cfg = run.Config(dict, p=run.Config(pathlib.Path, "/a"))
    assert serializer.deserialize(serializer.serialize(cfg)) == cfg


def test_constant_that_is_not_on_this_machine_stays_a_config() -> None:
    """A job's torch is in its image; who looks at its config elsewhere need not have it."""
    cfg = fdl.Config(pkgutil.resolve_name, "no_such_module.float8")
    serializer = ZlibJSONSerializer()
    assert serializer.deserialize(serializer.serialize(run.Config(dict, x=cfg))).x == cfg


@pytest.mark.parametrize("value", [OrderedDict(a=[1]), MappingProxyType({"a": [1]})], ids=["dict", "mapping"])
def test_mappings_become_dicts(value: Any) -> None:
    """Libraries that read YAML give such, and executors take them."""
    serializer = ZlibJSONSerializer()
    executor = run.Config(run.KubeflowExecutor, volumes=[value], affinity=value)
    read = serializer.deserialize(serializer.serialize(executor))
    assert (read.volumes, read.affinity) == ([{"a": [1]}], {"a": [1]})
    assert {type(read.volumes[0]), type(read.affinity)} == {dict}


def test_a_dict_that_makes_up_values_is_no_dict() -> None:
    with pytest.raises(ConfigError, match="no file can hold a value of type Counter"):
        ZlibJSONSerializer().serialize(run.Config(run.KubeflowExecutor, volumes=[Counter()]))


def test_shared_config_stays_shared() -> None:
    shared = run.Config(run.Script, path="a.sh")
    for serializer in (ZlibJSONSerializer(), YamlSerializer()):
        back: Any = serializer.deserialize(serializer.serialize(run.Config(dict, a=shared, b=shared)))
        assert back.a == back.b == shared


@pytest.mark.parametrize("text", ["", "no base64!", "aGVsbG8="], ids=["empty", "text", "not packed"])
def test_other_text_is_no_config(text: str) -> None:
    with pytest.raises(ConfigError, match="no serialised config"):
        ZlibJSONSerializer().deserialize(text)


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("a: 1", "_target_"),
        ("- 1", "_target_"),
        ("_target_: nope.nope", "_target_"),
        ("_target_: nemo_run.config.Script\nnope: 1", "_target_"),
    ],
)
def test_yaml_of_something_else_is_no_config(text: str, argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        YamlSerializer().deserialize(text)
    assert caught.value.argument == argument


def test_yaml_goes_to_a_stream(tmp_path: Path) -> None:
    with open(tmp_path / "x.yaml", "w+") as stream:
        assert YamlSerializer().serialize(run.Config(run.Script, path="a.sh"), stream) == ""
    assert (tmp_path / "x.yaml").read_text() == "_target_: nemo_run.config.Script\npath: a.sh\n"


def test_yaml_keys_of_its_own_are_refused_as_arguments() -> None:
    with pytest.raises(ConfigError, match="_call_"):
        YamlSerializer().serialize(run.Config(dict, _call_=1))


VOLUME = {"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}}
MOUNT = {"name": "model-cache", "mountPath": "/nemo-workspace", "subPath": "team-a"}


def saved() -> dict[str, Any]:
    """Give what test/compat/record_upstream.py had upstream write."""
    return {
        "kubeflow": run.KubeflowExecutor(
            launcher=run.Torchrun(),
            namespace="team",
            image="nvcr.io/nvidia/nemo:25.04",
            num_nodes=2,
            gpus_per_node=8,
            volumes=[VOLUME],
            volume_mounts=[MOUNT],
            workdir_pvc="model-cache",
            workdir_pvc_path="/nemo-workspace",
            env_vars={"A": "1", "EMPTY": ""},
            env_list=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            packager=run.GitArchivePackager(include_submodules=False),
        ),
        "kubeflow_defaults": run.KubeflowExecutor(),
        "kuberay": KubeRayExecutor(
            namespace="team",
            image="rayproject/ray:2.43.0",
            volumes=[VOLUME],
            volume_mounts=[MOUNT],
            worker_groups=[KubeRayWorkerGroup(group_name="w", replicas=2, gpus_per_worker=8)],
        ),
        "local": run.LocalExecutor(launcher="torchrun", ntasks_per_node=2, env_vars={"A": "1"}),
        "slurm": run.SlurmExecutor(account="a", nodes=2, tunnel=run.SSHTunnel(job_dir="/j", host="h", user="u")),
        "packager": run.PatternPackager(include_pattern=["a/*"], relative_path=["a"]),
        "script": run.Script(path="train.py", entrypoint="python", args=["--x", "a b"], env={"E": "1"}),
    }


@pytest.mark.parametrize("kind", ["zlib", "yaml"])
@pytest.mark.parametrize("name", sorted(saved()))
def test_what_upstream_saved_is_read(name: str, kind: str) -> None:
    """Recorded from 0.11.1; 0.10.0 writes the same bytes."""
    text = (UPSTREAM / f"{name}.{kind}").read_text()
    serializer: Any = ZlibJSONSerializer() if kind == "zlib" else YamlSerializer()
    assert fdl.build(serializer.deserialize(text)) == saved()[name]


@pytest.mark.parametrize("name", sorted(saved()))
def test_what_upstream_saved_is_written_again_as_it_was(name: str) -> None:
    """A saved config that is read and written stays what it was: fields keep what the user wrote."""
    text = (UPSTREAM / f"{name}.yaml").read_text()
    assert YamlSerializer().serialize(YamlSerializer().deserialize(text)) == text


def test_partial_that_upstream_saved_runs() -> None:
    task = ZlibJSONSerializer().deserialize((UPSTREAM / "partial.zlib").read_text())
    assert isinstance(task, run.Partial)
    assert task.default == run.Config(run.Script, inline="echo 1", args=["a b"])
    assert fdl.build(task)() == '{\n"a": [\n0,\n"",\nnull\n]\n}'

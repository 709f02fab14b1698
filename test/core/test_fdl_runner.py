"""Partials where they run: the runner as a program, and jobs on this machine and in pods, ours and NeMo-Run's."""

from __future__ import annotations

import json
import os
import pprint
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compat.upstream import VERSIONS, environment

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.testing import LocalKube

RUNNER = "nemo_run.core.runners.fdl_runner"

# A user's module: what a task calls and is called with.
LIBRARY = """
    import dataclasses, enum, functools, pathlib
    import nemo_run as run

    class Color(enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Model:
        size: int = 3
        place: pathlib.Path = pathlib.Path("/models")

    class Setup(run.Packager):
        def setup(self):
            print("set up")

    def show(*args, **values):
        told = {**dict(enumerate(args)), **values}
        print("shown:", ", ".join(f"{name}={value!r}" for name, value in told.items()))

    def apply(function):
        print("applied:", function())

    def add(a, b):
        return a + b

    class Wrong(Exception):
        pass

    def fail(error):
        raise error

    def leave(code):
        raise SystemExit(code)
"""

# A user's script: it defines the task, and launches it only if it is the program.
SCRIPT = """
    import dataclasses, enum, os, pathlib, sys
    import nemo_run as run

    class Color(enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Model:
        size: int = 3

        def double(self):
            return Model(self.size * 2)

    def train(model, color: Color = Color.RED, path=None, names=frozenset()):
        print("trained", model.double(), color, path, sorted(names))

    task = run.Partial(train, run.Config(Model, size=4), path=pathlib.Path("/a b"), names={"x", "y"})

    if __name__ == "__main__":
        LAUNCH
"""
TRAINED = "trained Model(size=8) Color.RED /a b ['x', 'y']"

VOLUMES = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]
WORKDIR = {"name": "work", "mountPath": "/workdir", "subPath": "team-a"}


@dataclass
class Place:
    """A directory with the user's modules, and programs started in it."""

    path: Path

    def __call__(self, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Ended:
        done = subprocess.run(
            command,
            cwd=cwd or self.path,
            env={**os.environ, "PYTHONPATH": str(self.path), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def run(self, *args: str, python: str = sys.executable) -> Ended:
        return self(python, "-m", RUNNER, *args)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def script(self, launch: str, name: str = "launch.py") -> Path:
        return self.write(name, SCRIPT.replace("LAUNCH", launch))

    def packed(self, expression: str) -> str:
        """Give the serialised config that *expression* means to a user's program."""
        code = (
            "import pathlib, library, nemo_run as run\n"
            "from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
            f"print(ZlibJSONSerializer().serialize({expression}), end='')"
        )
        done = self(sys.executable, "-c", code)
        assert done.code == 0, done.err
        return done.out

    def sent(self, script: str, name: str = "task") -> Path:
        """Give the file of ``task`` of *script*, laid out as an experiment's directory is."""
        main = self.write("exp/__main__.py", script.replace("LAUNCH", "pass"))
        code = (
            "import runpy, sys\n"
            "from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
            "text = ZlibJSONSerializer().serialize(task)\n"
            "open(sys.argv[1], 'w').write(text)\n"
        )
        file = self.write(f"exp/{name}/configs/{name}_fn_or_script", "")
        program = self.write("sender.py", main.read_text() + "\n" + code)
        done = self(sys.executable, str(program), str(file))
        assert done.code == 0, done.err
        return file


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.err.strip().splitlines()[-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "place")
    place.write("library.py", LIBRARY)
    return place


class TestArguments:
    def test_the_task_is_in_a_file_or_in_the_argument_itself(self, place: Place) -> None:
        text = place.packed("run.Partial(library.show, 0, b='é', c=None)")
        file = place.write("task", text)
        for given in (text, str(file), "task"):
            assert place.run("-n", "train", given) == Ended(0, "shown: 0=0, b='é', c=None\n", "")

    def test_a_name_and_arguments_that_it_does_not_know_change_nothing(self, place: Place) -> None:
        text = place.packed("run.Partial(library.show)")
        for args in ([text], ["--name", "a b", text], ["--unknown=1", text, "--more", "x"], [text, "-n", "late"]):
            assert place.run(*args) == Ended(0, "shown: \n", "")

    def test_a_config_runs_like_a_partial(self, place: Place) -> None:
        assert place.run(place.packed("run.Config(library.show, a=1)")).out == "shown: a=1\n"

    def test_a_dry_run_shows_and_builds_and_does_not_call(self, place: Place) -> None:
        text = place.packed("run.Partial(library.show, model=run.Config(library.Model, size=1))")
        done = place.run("--dryrun", text)
        assert (done.code, done.out.splitlines()[0]) == (0, "Dry run for task library:show")
        assert "model = <Config[Model(size=1" in done.out
        assert "shown" not in done.out
        wrong = place.run("--dryrun", place.packed("run.Partial(library.show, run.Config(library.add, 1, 'b'))"))
        assert (wrong.code, "TypeError" in wrong.err) == (1, True)

    @pytest.mark.parametrize("option", ["-p", "--package-cfg"])
    def test_a_packager_is_set_up_first(self, place: Place, option: str) -> None:
        packager, task = place.packed("run.Config(library.Setup)"), place.packed("run.Partial(library.show)")
        file = place.write("packager", packager)
        for given in (packager, str(file)):
            assert place.run(option, given, task) == Ended(0, "set up\nshown: \n", "")

    def test_without_a_task_it_tells_what_it_takes(self, place: Place) -> None:
        done = place.run("-n", "train")
        assert (done.code, "usage: python -m " + RUNNER in done.err) == (2, True)


class TestEnds:
    def test_an_exception_ends_it_with_its_traceback(self, place: Place) -> None:
        done = place.run(place.packed("run.Partial(library.fail, run.Config(library.Wrong, 'bad'))"))
        assert (done.code, done.last) == (1, "library.Wrong: bad")

    @pytest.mark.parametrize("code", [0, 3])
    def test_an_exit_keeps_its_code(self, place: Place, code: int) -> None:
        done = place.run(place.packed(f"run.Partial(library.leave, {code})"))
        assert done == Ended(code, "", "")

    def test_a_file_that_is_not_there_is_named(self, place: Place) -> None:
        done = place.run("/no/configs/task_fn_or_script")
        assert done.code == 1
        assert done.last.endswith(
            "task='/no/configs/task_fn_or_script': there is no such file, and it is no serialised config"
        )

    def test_text_that_is_cut_is_told(self, place: Place) -> None:
        done = place.run(place.packed("run.Partial(library.show)")[:-40])
        assert (done.code, "is no serialised config" in done.last) == (1, True)

    def test_a_module_that_the_image_lacks_is_named(self, place: Place) -> None:
        text = place.packed("run.Partial(library.show)")
        (place.path / "library.py").unlink()
        done = place.run(text)
        assert done.code == 1
        assert "No module named 'library'; what a task uses must be in the image, or among the files" in done.last


class TestTheLaunchingScript:
    @pytest.mark.parametrize("first", ["", "from __future__ import annotations\n"], ids=["plain", "annotations"])
    def test_its_functions_and_classes_work(self, place: Place, first: str) -> None:
        assert place.run(str(place.sent(first + textwrap.dedent(SCRIPT)))) == Ended(0, f"{TRAINED}\n", "")

    def test_what_is_below_its_main_guard_does_not_run(self, place: Place) -> None:
        file = place.sent(SCRIPT.replace("LAUNCH", "print('launched')"))
        assert place.run(str(file)).out == f"{TRAINED}\n"

    def test_it_is_not_loaded_for_a_task_that_needs_nothing_of_it(self, place: Place) -> None:
        file = place.sent("import library, nemo_run as run\ntask = run.Partial(library.show, '__main__')")
        place.write("exp/__main__.py", "import nowhere")
        assert place.run(str(file)) == Ended(0, "shown: 0='__main__'\n", "")

    def test_its_functions_can_be_sent_to_new_processes(self, place: Place) -> None:
        file = place.sent(
            """
            import multiprocessing
            import nemo_run as run

            class Job:
                def __init__(self, number):
                    self.number = number

            def square(job):
                return Job(job.number ** 2)

            def train():
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print([job.number for job in pool.map(square, [Job(3)])])

            task = run.Partial(train)
            """
        )
        assert place.run(str(file)) == Ended(0, "[9]\n", "")

    def test_a_name_that_it_defines_only_as_a_program_is_told(self, place: Place) -> None:
        file = place.sent(SCRIPT)
        place.write("exp/__main__.py", "if __name__ == '__main__':\n    def train(): pass\n")
        done = place.run(str(file))
        assert done.code == 1
        assert "module '__mp_main__' has no attribute 'Model'" in done.last
        assert 'not below `if __name__ == "__main__":`' in done.last

    @pytest.mark.parametrize(
        ("line", "error"),
        [
            ("import only_where_it_was_launched", "No module named 'only_where_it_was_launched'"),
            ("sys.exit(0)", "SystemExit(0)"),
            ("run.run(task, executor=run.LocalExecutor())", "a job loads the script that launched it"),
            ("run.run(task)", "a job loads the script that launched it"),
        ],
        ids=["import", "exit", "launch", "call"],
    )
    def test_one_that_cannot_be_loaded_is_named_with_the_reason(self, place: Place, line: str, error: str) -> None:
        """One that launches without a guard does not launch itself again and again."""
        file = place.sent(SCRIPT)
        place.write("exp/__main__.py", textwrap.dedent(SCRIPT).replace("LAUNCH", "pass") + line)
        done = place.run(str(file))
        assert done.code == 1
        assert f"__main__='{place.path}/exp/__main__.py': the script that launched this job" in done.last
        assert error in done.last
        assert done.last.endswith('below `if __name__ == "__main__":`, or the task into a module of its own')
        # Where the script cannot be loaded for a reason of its own, its traceback says where.
        assert ("Traceback" in done.err) == (not line.startswith("run.run"))


# Evaluated where it is sent from; every one must be built and shown alike by our runner and NeMo-Run's.
VALUES = """run.Partial(
    library.show, 0, False, None, 1.5, "é $X 'q'", [], {"a": {"b": [(1,)]}}, b"\\0",
    path=pathlib.Path("/a b"), color=library.Color.RED, numbers={2, 1}, frozen=frozenset([3]),
    function=library.add, kind=library.Model, model=run.Config(library.Model, size=4),
    given=library.Model(5), builtin=len, flag=__import__("re").IGNORECASE,
    nested=[{"place": pathlib.PurePosixPath("p")}, run.Config(library.Model)],
)"""
SHOWN = (
    "shown: 0=0, 1=False, 2=None, 3=1.5, 4=\"é $X 'q'\", 5=[], 6={'a': {'b': [(1,)]}}, 7=b'\\x00',"
    " path=PosixPath('/a b'), color=<Color.RED: 1>, numbers={1, 2}, frozen=frozenset({3}),"
)


@pytest.fixture(params=VERSIONS)
def upstream(request: pytest.FixtureRequest) -> Path:
    """An environment with NeMo-Run."""
    return environment(request.param)


@pytest.mark.upstream
@pytest.mark.timeout(1500)
class TestNeMoRun:
    def test_its_runner_takes_what_we_write(self, place: Place, upstream: Path) -> None:
        file = place.write("task", place.packed(VALUES))
        ours, theirs = (
            place.run("-n", "t", str(file), python=python) for python in (sys.executable, _python(upstream))
        )
        assert (ours.code, ours.err) == (theirs.code, theirs.err) == (0, "")
        assert _without_addresses(ours.out) == _without_addresses(theirs.out)
        assert ours.out.startswith(SHOWN)

    def test_its_runner_finds_what_our_script_defines(self, place: Place, upstream: Path) -> None:
        assert place.run(str(place.sent(SCRIPT)), python=_python(upstream)) == Ended(0, f"{TRAINED}\n", "")

    def test_our_runner_takes_an_experiment_that_it_wrote(self, place: Place, upstream: Path) -> None:
        script = place.script(
            "task.path, task.names = str(task.path), list(task.names)\n"
            "        with run.Experiment('demo', executor=run.LocalExecutor()) as exp:\n"
            "            exp.add(task, name='train')\n"
            "            exp.dryrun(log=False, delete_exp_dir=False)"
        )
        sent = place(_python(upstream), str(script), env={"NEMORUN_HOME": str(place.path)})
        assert sent.code == 0, sent.err
        (file,) = place.path.glob("experiments/demo/*/train/configs/train_fn_or_script")
        (packager,) = place.path.glob("experiments/demo/*/train/configs/train_packager")
        assert place.run("-n", "train", "-p", str(packager), str(file)) == Ended(0, f"{TRAINED}\n", "")


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


class TestOnThisMachine:
    def test_a_task_of_the_script_runs_from_any_directory(self, place: Place, tmp_path: Path) -> None:
        script = place.script("run.run(task, executor=run.LocalExecutor(), name='train')", "scripts/launch.py")
        done = place(sys.executable, str(script), cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
        assert done.code == 0, done.err
        assert f"train/0 {TRAINED}" in done.out
        assert "train: SUCCEEDED" in done.out

    def test_a_task_may_be_in_a_module_beside_the_script(self, place: Place, tmp_path: Path) -> None:
        place.write("scripts/beside.py", "def train(x):\n    print('beside', x)\n")
        script = place.write(
            "scripts/launch.py",
            """
            import beside, nemo_run as run
            if __name__ == "__main__":
                executor = run.LocalExecutor(env_vars={"PYTHONPATH": "/elsewhere"})
                run.run(run.Partial(beside.train, 1), executor=executor, name="train", raise_on_failure=True)
            """,
        )
        done = place(sys.executable, str(script), cwd=tmp_path)
        assert (done.code, "train/0 beside 1" in done.out) == (0, True), done.err

    def test_a_task_of_an_interactive_session_is_refused_as_no_job_can_find_it(self, place: Place) -> None:
        code = """
            import nemo_run as run
            def train(): print("here")
            run.run(run.Partial(train), direct=True)
            run.run(run.Partial(train), executor=run.LocalExecutor(), name="train")
        """
        done = place(sys.executable, "-c", textwrap.dedent(code))
        assert (done.code, "here\n" in done.out) == (1, True)
        assert "train uses what this interactive session defines, which a job cannot find" in done.last

    def test_the_files_are_where_nemo_run_puts_them(self, tmp_path: Path) -> None:
        with run.Experiment("demo", base_dir=str(tmp_path)) as exp:
            exp.add(run.Partial(pprint.pprint, "x"), name="train")
            exp.dryrun(log=False, delete_exp_dir=False)
        configs = Path(exp._exp_dir, "train", "configs")
        assert sorted(path.name for path in configs.iterdir()) == [
            "train_config.yaml",
            "train_executor.yaml",
            "train_fn_or_script",
            "train_packager",
        ]
        read = ZlibJSONSerializer().deserialize
        assert read((configs / "train_fn_or_script").read_text()) == run.Partial(pprint.pprint, "x")
        assert read((configs / "train_packager").read_text()) == run.Config(run.Packager)


def executor(**changes: Any) -> run.KubeflowExecutor:
    fields = {"image": "python:3.12", "volumes": VOLUMES, "workdir_volume_mount": WORKDIR}
    return run.KubeflowExecutor(**{**fields, **changes})


BARE = {"volumes": [], "workdir_volume_mount": None}


def log(title: str) -> str:
    directory = Path(run.Experiment.from_title(title).jobs[0].executor.job_dir)
    return re.sub(r"^\[.*?\] ", "", (directory / "log-allranks_0.out").read_text(), flags=re.MULTILINE)


class TestInPods:
    def test_without_a_workdir_the_task_travels_in_the_arguments(self, kube: LocalKube) -> None:
        run.run(run.Partial(pprint.pprint, "it's $HOME $(X)"), executor=executor(**BARE), name="train")
        assert log("train") == '"it\'s $HOME $(X)"\n'

    def test_a_script_s_text_and_the_launching_script_travel_so_too(self, kube: LocalKube, place: Place) -> None:
        script = place.script(
            "executor = run.KubeflowExecutor(image='python:3.12')\n"
            "        run.run(task, executor=executor, name='train', raise_on_failure=True)\n"
            "        inline = run.Script(inline='echo \"it\\'s $0\"; pwd')\n"
            "        run.run(inline, executor=executor, name='inline', raise_on_failure=True)"
        )
        done = place(sys.executable, str(script))
        assert done.code == 0, done.err
        assert log("train") == f"{TRAINED}\n"
        assert re.fullmatch(r"it's /tmp/tmp\.\w+/scripts/inline\.sh\n/\n", log("inline"))

    def test_with_a_workdir_all_is_copied_however_large(self, kube: LocalKube, place: Place) -> None:
        place.write("beside.py", "def count(text):\n    print(len(text))\n")
        script = place.script(
            "import beside, json\n"
            "        executor = run.KubeflowExecutor(**json.loads(sys.argv[1]), num_nodes=2, launcher='torchrun')\n"
            "        large = run.Partial(beside.count, os.urandom(300_000).hex())\n"
            "        run.run(task, executor=executor, name='train', raise_on_failure=True)\n"
            "        run.run(large, executor=executor, name='large', raise_on_failure=True)"
        )
        fields = {
            "image": "x",
            "volumes": VOLUMES,
            "workdir_volume_mount": WORKDIR,
            "workdir_local_path": str(place.path),
        }
        done = place(sys.executable, str(script), json.dumps(fields))
        assert done.code == 0, done.err
        assert sorted(line for line in log("train").splitlines() if "trained" in line) == [f"[default0]:{TRAINED}"] * 2
        assert sorted(line for line in log("large").splitlines() if "600000" in line) == ["[default0]:600000"] * 2
        jobs = [path.parents[1].name for path in kube.claim("shared").glob("**/code/__main__.py")]
        assert jobs == ["train"], "the launching script is sent to jobs that use what it defines, and to no other"

    def test_too_large_for_the_arguments_is_told_before_anything_is_asked(self, kube: LocalKube) -> None:
        before = len(kube.requests)
        with pytest.raises(ConfigError, match=r"travels inside the manifest, where \d{6} bytes are too many") as caught:
            run.run(run.Partial(pprint.pprint, os.urandom(100_000).hex()), executor=executor(**BARE), name="train")
        assert caught.value.argument == "task"
        assert "set workdir_volume_mount" in caught.value.hint
        assert len(kube.requests) == before

    def test_a_packager_of_files_and_the_task_s_own_modules_are_found(self, kube: LocalKube, place: Place) -> None:
        place.write("repo/mine/training.py", "def train():\n    print('from', __file__)\n")
        place.write("repo/mine/__init__.py", "")
        script = place.write(
            "repo/launch.py",
            f"""
            import os, nemo_run as run
            from mine import training
            if __name__ == "__main__":
                packager = run.PatternPackager(include_pattern="mine/*", relative_path=os.getcwd())
                executor = run.KubeflowExecutor(
                    image="x", volumes={VOLUMES}, workdir_volume_mount={WORKDIR}, packager=packager
                )
                run.run(run.Partial(training.train), executor=executor, name="train", raise_on_failure=True)
            """,
        )
        done = place(sys.executable, str(script), cwd=script.parent)
        assert done.code == 0, done.err
        assert re.fullmatch(r"from /workdir/.*/train/code/code/mine/training\.py\n", log("train"))


@pytest.fixture
def upstream_kube(upstream: Path, tmp_path: Path) -> Iterator[LocalKube]:
    """A cluster whose pods can mount the environment with NeMo-Run, which may lie in a directory they do not see."""
    claims = {"shared": tmp_path / "shared", "upstream": upstream}
    with LocalKube(images={"alpine*": "busybox"}, claims=claims) as kube:
        yield kube


@pytest.mark.upstream
@pytest.mark.timeout(1500)
def test_what_we_send_runs_in_pods_with_nemo_run(upstream_kube: LocalKube, upstream: Path, place: Place) -> None:
    """The script's own task and one of a module, with a workdir and without."""
    bare = {
        "image": "python:3.12",
        "env_vars": {"PATH": f"{upstream}/bin:/usr/bin:/bin"},
        "volumes": [{"name": "env", "persistentVolumeClaim": {"claimName": "upstream"}}],
        "volume_mounts": [{"name": "env", "mountPath": str(upstream), "readOnly": True}],
    }
    copied = {**bare, "volumes": [*bare["volumes"], *VOLUMES], "workdir_volume_mount": WORKDIR}
    script = place.script(
        "import json, pprint\n"
        "        with run.Experiment('demo') as exp:\n"
        "            for name, fields in json.loads(sys.argv[1]).items():\n"
        "                executor = run.KubeflowExecutor(**fields)\n"
        "                exp.add(task, executor, name=f'{name}-script')\n"
        "                exp.add(run.Partial(pprint.pprint, name), executor, name=f'{name}-module')\n"
        "            exp.run(raise_on_failure=True)"
    )
    done = place(sys.executable, str(script), json.dumps({"bare": bare, "copied": copied}))
    assert done.code == 0, done.err + done.out
    directory = Path(run.Experiment.from_title("demo")._exp_dir)
    logs = {path.parent.name: path.read_text() for path in directory.glob("*/log-allranks_0.out")}
    assert {name: re.sub(r"\[.*?\] ", "", text) for name, text in logs.items()} == {
        "bare-script": f"{TRAINED}\n",
        "bare-module": "'bare'\n",
        "copied-script": f"{TRAINED}\n",
        "copied-module": "'copied'\n",
    }

"""Jobs that fail at once: their pods are deleted with their logs, so what they wrote is read while they are there."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import nemo_run as run
from nemo_run._kube.resources import POD
from nemo_run.run._store import Records

GAP = "--- lines may be missing ---"
CRASH = "echo $HOSTNAME $(date +%s%N) | tee -a /data/$HOSTNAME; echo second; exit 3"


def executor(**changes):
    fields = {
        "image": "python:3.12",
        "num_nodes": 2,
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        "volume_mounts": [{"name": "work", "mountPath": "/data"}],
    }
    return run.KubeflowExecutor(**{**fields, **changes})


def experiment(tasks, **changes):
    with run.Experiment("quick", executor=executor(**changes)) as exp:
        for name, script in tasks.items():
            exp.add(run.Script(inline=script), name=name, tail_logs=True)
        exp.run()
    return exp


def kept(exp):
    """Give the log files' lines, and those that stand for lost ones, by the host name of their pods."""
    lines, gaps = defaultdict(list), defaultdict(list)
    for log in Path(exp._exp_dir).glob("*/log-allranks_0.out"):
        for line in log.read_text().splitlines():
            pod, text = re.fullmatch(r"\[pod/(.*?)/node\] (.*)", line).groups()
            (gaps if text.startswith(GAP) else lines)[pod.rpartition("-")[0]].append(text)
    return lines, gaps


def test_each_start_of_each_container_is_read_or_named_as_missing(kube, capsys):
    """
    Ten jobs of two nodes that crash within milliseconds.

    LocalKube restarts a container a hundred times sooner than a real kubelet, on
    a busy machine faster than anybody can read.
    """
    exp = experiment({f"t{number}": CRASH for number in range(10)})
    wrote = {
        file.name: file.read_text().splitlines() for file in kube.claim("shared").glob("t*-node-0-*") if file.is_file()
    }
    lines, gaps = kept(exp)
    assert len(wrote) == 20
    for host, texts in wrote.items():
        read = [text for text in lines[host] if text != "second"]
        assert len(set(read)) == len(read)
        named = {int(number) for gap in gaps[host] for number in re.findall(r"\d+", gap.partition(", attempt")[2])}
        assert set(texts) <= set(read) or named, (host, texts, read)
        assert set(read) <= set(texts)
    read = sum(text != "second" for texts in lines.values() for text in texts)
    assert read >= 0.8 * sum(map(len, wrote.values()))
    assert "no pod of it was seen running" not in capsys.readouterr().out


def test_a_job_that_fails_while_others_are_still_launched_loses_nothing(kube):
    """Nobody waits for the first yet."""
    tasks = {"first": CRASH, **{f"later{number}": "true" for number in range(3)}}
    exp = experiment(tasks, num_nodes=1)
    lines, gaps = kept(exp)
    (host,) = (host for host in lines if host.startswith("first"))
    assert lines[host] or gaps[host]
    assert "second" in lines[host]


def test_all_lines_of_a_burst_before_the_end_arrive(kube):
    exp = experiment({"burst": "seq 5000; exit 1"}, num_nodes=1)
    lines, _ = kept(exp)
    (texts,) = lines.values()
    assert texts[:5000] == [str(number) for number in range(1, 5001)]


def interrupted(exp, task, lines):
    """Leave what an interrupt leaves: a file that ends early, and a record that does not call it whole."""
    log = Path(exp._exp_dir, task, "log-allranks_0.out")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:lines]))
    records = Records(Path(exp._exp_dir).parents[2] / ".kubeflow_jobs.json")
    for app_id in records.read():
        records.merge(app_id, {"log": ""})


def shown(capsys, exp, task):
    capsys.readouterr()
    run.Experiment.from_id(exp._id).logs(task)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("[pod/", GAP))]


def test_a_log_file_whose_following_was_interrupted_is_completed_from_the_pods(kube, capsys):
    exp = experiment({"train": "seq 5"}, num_nodes=1)
    interrupted(exp, "train", 2)
    for _ in range(2):
        assert [line.partition("] ")[2] for line in shown(capsys, exp, "train")] == ["1", "2", "3", "4", "5"]


def test_where_the_pods_are_gone_it_says_that_it_ends_early(kube, capsys):
    exp = experiment({"train": "seq 5; exit 1"}, num_nodes=1)
    interrupted(exp, "train", 2)
    for _ in range(2):
        *lines, last = shown(capsys, exp, "train")
        assert [line.partition("] ")[2] for line in lines] == ["1", "2"]
        assert last == f"{GAP} the job's pods were gone before they could be read"


def test_where_one_pod_is_gone_it_says_that_it_ends_early(kube, capsys):
    exp = experiment({"train": "seq 5"})
    interrupted(exp, "train", 2)
    (pod, *_) = kube.do(lambda store: store.list(POD, "default", labels="jobset.sigs.k8s.io/replicatedjob-name=node"))
    kube.do(lambda store: store.delete(POD, "default", pod["metadata"]["name"], grace=0))
    last = shown(capsys, exp, "train")[-1]
    assert last == f"{GAP} the job was not followed to its end, and not all of its pods could be read afterwards"

"""RayCluster manifests: what the executor's fields make of head and workers."""

import copy

import pytest

from nemo_run.core.execution.base import current_user
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError, InvalidName

WORK = {"name": "w", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "w", "mountPath": "/work", "subPath": "a"}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}
DATA_MOUNT = {"name": "data", "mountPath": "/data", "readOnly": True}
SCRATCH = {"name": "scratch", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "scratch", "mountPath": "/scratch"}
STOP = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}}
HEAD_RESOURCES = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}


def body(name="mine", *, local_dir=None, pre_ray_start_commands=(), **fields):
    executor = KubeRayExecutor(**fields)
    return executor.get_cluster_body(name, local_dir=local_dir, pre_ray_start_commands=pre_ray_start_commands)


def templates(manifest):
    """Give the pod templates, the head's first."""
    spec = manifest["spec"]
    return [group["template"] for group in (spec["headGroupSpec"], *spec.get("workerGroupSpecs", []))]


def pods(manifest):
    return [template["spec"] for template in templates(manifest)]


def ray_containers(manifest):
    return [pod["containers"][0] for pod in pods(manifest)]


def head(manifest):
    return ray_containers(manifest)[0]


def test_the_defaults_make_a_head_alone():
    assert body() == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {
            "rayVersion": "2.43.0",
            "headGroupSpec": {
                "serviceType": "ClusterIP",
                "rayStartParams": {"dashboard-host": "0.0.0.0"},
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "ray-head",
                                "image": "rayproject/ray:2.43.0",
                                "lifecycle": STOP,
                                "resources": HEAD_RESOURCES,
                            }
                        ]
                    }
                },
            },
        },
    }


def test_everything_has_its_place():
    manifest = body(
        namespace="ml",
        image="img",
        head_cpu=4,
        head_memory="8Gi",
        ray_head_start_params={"num-cpus": 0},
        ray_worker_start_params={"verbose": True, "x": None},
        worker_groups=[
            KubeRayWorkerGroup(
                group_name="gpu",
                replicas=2,
                min_replicas=0,
                max_replicas=4,
                gpus_per_worker=8,
                cpu_requests="8",
                memory_requests="16Gi",
                cpu_limits="16",
                memory_limits="32Gi",
                labels={"team": "b", "n": 1},
                annotations={"note": "g"},
                num_of_hosts=2,
                ray_start_params={"verbose": "x"},
                pod_spec={"hostNetwork": True, "schedulerName": None},
            )
        ],
        labels={"kueue.x-k8s.io/queue-name": "q"},
        annotations={"a": 1},
        service_type="NodePort",
        env_vars={"A": 1, "B": None, "PRICE": "$5"},
        env_list=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        spec_kwargs={"schedulerName": "volcano"},
        container_kwargs={"imagePullPolicy": "Always", "env": [{"name": "A", "value": "2"}]},
        lifecycle_kwargs={"postStart": {"exec": {"command": ["true"]}}},
        image_pull_secrets=["registry"],
        tolerations=[{"key": "gpu"}],
        affinity={"nodeAffinity": {}},
        node_selector={"zone": "a"},
        pod_labels={"team": "a"},
        pod_annotations={"note": "p", "other": True},
        autoscaler_options={"idleTimeoutSeconds": 60},
    )
    common = {
        "image": "img",
        "lifecycle": {**STOP, "postStart": {"exec": {"command": ["true"]}}},
        "imagePullPolicy": "Always",
        "env": [
            {"name": "A", "value": "2"},
            {"name": "PRICE", "value": "$$5"},
            {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
    }
    placement = {
        "tolerations": [{"key": "gpu"}],
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"zone": "a"},
        "imagePullSecrets": [{"name": "registry"}],
    }
    assert manifest == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "mine",
            "namespace": "ml",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": {"a": "1"},
        },
        "spec": {
            "rayVersion": "2.43.0",
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"idleTimeoutSeconds": 60},
            "headGroupSpec": {
                "serviceType": "NodePort",
                "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
                "template": {
                    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "p", "other": "true"}},
                    "spec": {
                        **placement,
                        "schedulerName": "volcano",
                        "containers": [
                            {
                                "name": "ray-head",
                                **common,
                                "resources": {
                                    "requests": {"cpu": "4", "memory": "8Gi"},
                                    "limits": {"cpu": "4", "memory": "8Gi"},
                                },
                            }
                        ],
                    },
                },
            },
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": 2,
                    "minReplicas": 0,
                    "maxReplicas": 4,
                    "numOfHosts": 2,
                    "rayStartParams": {"verbose": "x"},
                    "template": {
                        "metadata": {
                            "labels": {"team": "b", "n": "1"},
                            "annotations": {"note": "g", "other": "true"},
                        },
                        "spec": {
                            **placement,
                            "hostNetwork": True,
                            "containers": [
                                {
                                    "name": "ray-worker",
                                    **common,
                                    "resources": {
                                        "requests": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "8"},
                                        "limits": {"cpu": "16", "memory": "32Gi", "nvidia.com/gpu": "8"},
                                    },
                                }
                            ],
                        },
                    },
                }
            ],
        },
    }


class TestWorkdir:
    groups = [KubeRayWorkerGroup("a"), KubeRayWorkerGroup("b")]  # noqa: RUF012

    @pytest.mark.parametrize("reuse", [True, False])
    def test_it_is_mounted_in_the_head_and_in_every_worker_group(self, reuse):
        """What is not mounted is an empty directory of the container's own."""
        manifest = body(
            volumes=[WORK],
            workdir_volume_mount=MOUNT,
            volume_mounts=[],
            worker_groups=self.groups,
            reuse_volumes_in_worker_groups=reuse,
        )
        seen = [(pod["volumes"], pod["containers"][0]["volumeMounts"]) for pod in pods(manifest)]
        assert seen == [([WORK], [MOUNT])] * 3
        home = f"/work/{current_user()}/code"
        assert [container["workingDir"] for container in ray_containers(manifest)] == [home] * 3

    def test_ray_starts_in_the_synced_directory(self, tmp_path):
        (tmp_path / "proj").mkdir()
        manifest = body(
            volumes=[WORK], workdir_volume_mount=MOUNT, worker_groups=self.groups, local_dir=str(tmp_path / "proj")
        )
        home = f"/work/{current_user()}/code/proj"
        assert [container["workingDir"] for container in ray_containers(manifest)] == [home] * 3

    def test_a_volume_that_is_not_declared_is_refused(self):
        with pytest.raises(ConfigError, match="no volume of that name in volumes, which holds 'data'"):
            body(volumes=[DATA], workdir_volume_mount=MOUNT)

    def test_an_equal_mount_in_volume_mounts_collapses(self):
        manifest = body(volumes=[WORK], workdir_volume_mount=MOUNT, volume_mounts=[MOUNT], worker_groups=self.groups)
        assert [container["volumeMounts"] for container in ray_containers(manifest)] == [[MOUNT]] * 3

    @pytest.mark.parametrize(
        "place",
        [
            lambda mount: {"volume_mounts": [mount]},
            lambda mount: {"container_kwargs": {"volumeMounts": [mount]}},
            lambda mount: {"worker_groups": [KubeRayWorkerGroup("a"), KubeRayWorkerGroup("b", volume_mounts=[mount])]},
        ],
        ids=["executor", "container_kwargs", "worker-group"],
    )
    @pytest.mark.parametrize("reuse", [True, False])
    def test_another_mount_at_its_path_is_refused_wherever_it_comes_from(self, place, reuse):
        other = {**MOUNT, "subPath": "b"}
        with pytest.raises(ConfigError) as caught:
            body(volumes=[WORK], workdir_volume_mount=MOUNT, reuse_volumes_in_worker_groups=reuse, **place(other))
        assert caught.value.value == [other, MOUNT]

    def test_its_volume_may_be_mounted_elsewhere_too(self):
        data = {"name": "w", "mountPath": "/data", "subPath": "d"}
        manifest = body(volumes=[WORK], volume_mounts=[data], workdir_volume_mount=MOUNT, worker_groups=self.groups)
        seen = [(pod["volumes"], pod["containers"][0]["volumeMounts"]) for pod in pods(manifest)]
        assert seen == [([WORK], [data, MOUNT])] * 3

    def test_a_group_with_the_claim_under_its_own_name_does_not_get_it_twice(self):
        own = {"name": "own", "persistentVolumeClaim": {"claimName": "shared"}}
        group = KubeRayWorkerGroup("a", volumes=[own], volume_mounts=[{"name": "own", "mountPath": "/own"}])
        manifest = body(
            volumes=[WORK], workdir_volume_mount=MOUNT, worker_groups=[group], reuse_volumes_in_worker_groups=False
        )
        assert pods(manifest)[1]["volumes"] == [own]
        assert ray_containers(manifest)[1]["volumeMounts"] == [
            {"name": "own", "mountPath": "/own"},
            {**MOUNT, "name": "own"},
        ]

    def test_sidecars_are_left_alone(self):
        sidecar = {"name": "proxy", "image": "p"}
        manifest = body(volumes=[WORK], workdir_volume_mount=MOUNT, spec_kwargs={"containers": [sidecar]})
        (pod,) = pods(manifest)
        assert pod["containers"][0]["volumeMounts"] == [MOUNT]
        assert pod["containers"][1:] == [sidecar]

    def test_without_one_nothing_is_added(self):
        manifest = body(volumes=[DATA], volume_mounts=[DATA_MOUNT])
        assert head(manifest)["volumeMounts"] == [DATA_MOUNT]
        assert "workingDir" not in head(manifest)


class TestVolumes:
    def test_a_group_keeps_its_own_beside_the_shared_ones(self):
        group = KubeRayWorkerGroup("a", volumes=[SCRATCH], volume_mounts=[SCRATCH_MOUNT])
        manifest = body(volumes=[DATA], volume_mounts=[DATA_MOUNT], worker_groups=[group, KubeRayWorkerGroup("b")])
        seen = [(pod["volumes"], pod["containers"][0]["volumeMounts"]) for pod in pods(manifest)]
        assert seen == [
            ([DATA], [DATA_MOUNT]),
            ([DATA, SCRATCH], [DATA_MOUNT, SCRATCH_MOUNT]),
            ([DATA], [DATA_MOUNT]),
        ]

    def test_without_reuse_it_has_its_own_alone(self):
        group = KubeRayWorkerGroup("a", volumes=[SCRATCH], volume_mounts=[SCRATCH_MOUNT])
        manifest = body(
            volumes=[DATA], volume_mounts=[DATA_MOUNT], worker_groups=[group], reuse_volumes_in_worker_groups=False
        )
        assert (pods(manifest)[1]["volumes"], ray_containers(manifest)[1]["volumeMounts"]) == (
            [SCRATCH],
            [SCRATCH_MOUNT],
        )

    def test_what_is_appended_later_reaches_the_workers(self):
        executor = KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("a")])
        executor.volumes.append(SCRATCH)
        executor.volume_mounts.append(SCRATCH_MOUNT)
        manifest = executor.get_cluster_body("mine")
        assert [container["volumeMounts"] for container in ray_containers(manifest)] == [[SCRATCH_MOUNT]] * 2

    def test_a_group_that_was_given_the_shared_ones_has_them_once(self):
        """NeMo-Run wrote the executor's volumes into each group, and saved them so."""
        group = KubeRayWorkerGroup("a", volumes=[dict(DATA)], volume_mounts=[dict(DATA_MOUNT)])
        manifest = body(volumes=[DATA], volume_mounts=[DATA_MOUNT], worker_groups=[group])
        assert (pods(manifest)[1]["volumes"], ray_containers(manifest)[1]["volumeMounts"]) == ([DATA], [DATA_MOUNT])

    def test_volumes_that_pass_through_join(self):
        manifest = body(
            volumes=[DATA],
            volume_mounts=[DATA_MOUNT],
            spec_kwargs={"volumes": [SCRATCH]},
            container_kwargs={"volumeMounts": [SCRATCH_MOUNT]},
        )
        assert (pods(manifest)[0]["volumes"], head(manifest)["volumeMounts"]) == (
            [DATA, SCRATCH],
            [DATA_MOUNT, SCRATCH_MOUNT],
        )

    def test_a_mount_of_no_volume_is_refused(self):
        with pytest.raises(ConfigError, match="no volume of that name in volumes, which holds nothing") as caught:
            body(volume_mounts=[DATA_MOUNT])
        assert (caught.value.argument, caught.value.value) == ("volume_mounts", DATA_MOUNT)

    def test_a_group_cannot_mount_what_only_the_head_has(self):
        group = KubeRayWorkerGroup("a", volume_mounts=[DATA_MOUNT], volumes=[SCRATCH])
        with pytest.raises(ConfigError, match="which holds 'scratch'"):
            body(volumes=[DATA], worker_groups=[group], reuse_volumes_in_worker_groups=False)


class TestInertness:
    def test_nothing_of_the_callers_changes_and_the_second_manifest_is_as_the_first(self):
        shared = {
            "volumes": [WORK, SCRATCH],
            "volume_mounts": [SCRATCH_MOUNT],
            "workdir_volume_mount": MOUNT,
            "ray_head_start_params": {},
            "ray_worker_start_params": {"x": 1},
            "labels": {"l": 1},
            "env_vars": {"A": 1},
            "env_list": [{"name": "B", "value": 2}],
            "spec_kwargs": {"image_pull_secrets": ["s"]},
            "container_kwargs": {"securityContext": {"privileged": True}},
            "lifecycle_kwargs": {},
            "head_ports": [{"name": "serve", "containerPort": 8000}],
            "worker_groups": [KubeRayWorkerGroup("a"), KubeRayWorkerGroup("b", volumes=[DATA])],
            "autoscaler_options": {"idleTimeoutSeconds": 1},
        }
        before = copy.deepcopy(shared)
        one, other = KubeRayExecutor(**shared), KubeRayExecutor(**shared)
        manifests = [
            executor.get_cluster_body("mine", pre_ray_start_commands=["true"]) for executor in (one, one, other)
        ]
        assert shared == before
        assert manifests[0] == manifests[1] == manifests[2]

    def test_groups_and_manifests_share_nothing(self):
        executor = KubeRayExecutor(
            volumes=[WORK],
            workdir_volume_mount=MOUNT,
            worker_groups=[KubeRayWorkerGroup("a"), KubeRayWorkerGroup("b")],
            ray_worker_start_params={"x": "1"},
            container_kwargs={"securityContext": {"privileged": True}},
            lifecycle_kwargs={"postStart": {"exec": {"command": ["true"]}}},
            autoscaler_options={"x": {}},
        )
        expected = copy.deepcopy(executor.get_cluster_body("mine"))
        spoilt = executor.get_cluster_body("mine")
        first, second = spoilt["spec"]["workerGroupSpecs"]
        first["rayStartParams"]["x"] = "2"
        container = first["template"]["spec"]["containers"][0]
        container["securityContext"]["privileged"] = False
        container["lifecycle"]["postStart"]["exec"]["command"].append("x")
        container["volumeMounts"][0]["subPath"] = "x"
        first["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "x"
        spoilt["spec"]["autoscalerOptions"]["x"]["y"] = 1
        assert second == expected["spec"]["workerGroupSpecs"][1]
        assert executor.get_cluster_body("mine") == expected


class TestResources:
    @pytest.mark.parametrize(
        ("executor", "group", "key"),
        [
            ({}, {}, "nvidia.com/gpu"),
            ({"gpu_resource": "amd.com/gpu"}, {}, "amd.com/gpu"),
            ({"gpu_resource": "amd.com/gpu"}, {"gpu_resource": "nvidia.com/mig-1g.10gb"}, "nvidia.com/mig-1g.10gb"),
        ],
        ids=["default", "executor", "group"],
    )
    def test_what_counts_gpus_can_be_named(self, executor, group, key):
        manifest = body(worker_groups=[KubeRayWorkerGroup("a", gpus_per_worker=2, **group)], **executor)
        assert ray_containers(manifest)[1]["resources"] == {"requests": {key: "2"}, "limits": {key: "2"}}

    @pytest.mark.parametrize("gpus", [None, 0])
    def test_no_gpus_is_no_key(self, gpus):
        assert "resources" not in ray_containers(body(worker_groups=[KubeRayWorkerGroup("a", gpus_per_worker=gpus)]))[1]


class TestReplicas:
    @pytest.mark.parametrize(
        ("given", "low", "high"),
        [((2,), 2, 2), ((2, 0), 0, 2), ((2, 0, 4), 0, 4), ((0, 0, 4), 0, 4)],
        ids=["one-number", "none-at-least", "both", "none-at-first"],
    )
    def test_zero_is_zero(self, given, low, high):
        group = body(worker_groups=[KubeRayWorkerGroup("a", *given)])["spec"]["workerGroupSpecs"][0]
        assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (given[0], low, high)

    def test_limits_may_be_taken_back(self):
        group = KubeRayWorkerGroup("a", 2)
        group.replicas, group.min_replicas, group.max_replicas = 5, None, None
        made = body(worker_groups=[group])["spec"]["workerGroupSpecs"][0]
        assert (made["replicas"], made["minReplicas"], made["maxReplicas"]) == (5, 5, 5)

    @pytest.mark.parametrize(
        "given", [(2, 3, 4), (5, 0, 4), (1, -1, 1), (-1,)], ids=["few", "many", "below-zero", "negative"]
    )
    def test_what_kuberay_would_refuse_or_cut_is_refused(self, given):
        with pytest.raises(ConfigError, match="0 <= min_replicas <= replicas <= max_replicas"):
            body(worker_groups=[KubeRayWorkerGroup("a", *given)])


class TestHeadPorts:
    def test_none_are_left_to_kuberay(self):
        assert "ports" not in head(body())

    @pytest.mark.parametrize(
        ("ports", "added"),
        [
            pytest.param([{"name": "serve", "containerPort": 8000}], ["gcs-server", "client", "dashboard"], id="all"),
            pytest.param([{"name": "dashboard", "containerPort": 9000}], ["gcs-server", "client"], id="own-dashboard"),
            pytest.param([{"name": "gcs", "containerPort": 6379}], ["client", "dashboard"], id="taken-number"),
        ],
    )
    def test_some_are_completed(self, ports, added):
        numbers = {"gcs-server": 6379, "client": 10001, "dashboard": 8265}
        assert head(body(head_ports=ports))["ports"] == [
            *ports,
            *({"name": name, "containerPort": numbers[name]} for name in added),
        ]

    def test_a_dashboard_that_kuberay_would_not_find_is_refused(self):
        with pytest.raises(ConfigError, match="call port 8265 'dashboard'"):
            body(head_ports=[{"name": "web", "containerPort": 8265}])


class TestNames:
    @pytest.mark.parametrize("name", ["a", "my-run", "x" * 53])
    def test_a_good_name_stays(self, name):
        assert body(name)["metadata"]["name"] == name

    @pytest.mark.parametrize("name", ["x" * 54, "3dteam-run", "my.run", "Run_A", ""])
    def test_any_other_becomes_one_that_kuberay_takes_always_the_same(self, name):
        made = body(name)["metadata"]["name"]
        assert len(made) <= 53
        assert body(made)["metadata"]["name"] == made == body(name)["metadata"]["name"]

    @pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "x" * 64])
    def test_a_group_name_that_pods_cannot_have_is_refused(self, name):
        with pytest.raises(InvalidName):
            body(worker_groups=[KubeRayWorkerGroup(name)])

    def test_two_groups_of_one_name_are_refused(self):
        with pytest.raises(ConfigError, match="two groups have this group_name"):
            body(worker_groups=[KubeRayWorkerGroup("a"), KubeRayWorkerGroup("a")])

    @pytest.mark.parametrize("argument", ["labels", "pod_labels"])
    def test_a_label_that_kubernetes_refuses_is_refused(self, argument):
        with pytest.raises(ConfigError) as caught:
            body(**{argument: {"owner": "a@b.c"}})
        assert caught.value.argument == f"{argument}['owner']"


class TestAutoscaler:
    @pytest.mark.parametrize(
        ("options", "spec"),
        [
            (None, {}),
            ({}, {"enableInTreeAutoscaling": True}),
            ({"version": "v2"}, {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}),
        ],
        ids=["off", "on", "on-with-options"],
    )
    def test_options_turn_it_on(self, options, spec):
        made = body(autoscaler_options=options)["spec"]
        assert {key: made[key] for key in made if "utoscal" in key} == spec


class TestPassedThrough:
    def test_snake_case_is_understood_and_told(self, caplog):
        manifest = body(spec_kwargs={"schedulerName": "volcano", "image_pull_secrets": ["s"]})
        (pod,) = pods(manifest)
        assert (pod["schedulerName"], pod["imagePullSecrets"]) == ("volcano", [{"name": "s"}])
        assert caplog.messages == ["spec_kwargs: 'image_pull_secrets' is taken as 'imagePullSecrets'"]

    def test_what_kubernetes_does_not_know_is_left_out_and_told(self, caplog):
        assert "nope" not in head(body(container_kwargs={"nope": 1}))
        assert caplog.messages == ["container_kwargs: 'nope' is left out, since Kubernetes has no such field here"]

    @pytest.mark.parametrize("argument", ["spec_kwargs", "container_kwargs"])
    def test_strict_refuses_it(self, argument):
        with pytest.raises(ConfigError, match="remove it"):
            body(strict=True, **{argument: {"nope": 1}})

    def test_a_groups_own_pod_spec_is_always_strict(self):
        with pytest.raises(ConfigError) as caught:
            body(worker_groups=[KubeRayWorkerGroup("a", pod_spec={"nope": 1})])
        assert caught.value.argument == "a.pod_spec"

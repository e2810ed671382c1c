#!/usr/bin/env python3
"""Manifests in dashboards/kubernetes: what refers to what, and the schemas of Kubernetes and of the Prometheus operator.

The schemas are npm's kubernetes-models, at the versions in kubernetes/package-lock.json, put into HEADROOM_NODE_MODULES (a folder of the
build). Without npm, node or a registry everything else is checked, and then: skipped, 77. Without python3-yaml: skipped, 77.
"""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's package, where the Python that runs this is another one
try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent / "kubernetes"
MANIFESTS = HERE.parents[2] / "dashboards" / "kubernetes"
PLACE = pathlib.Path(os.environ.get("HEADROOM_NODE_MODULES", ""))
LIMIT = 240  # seconds


def objects():
    return {f"{path.name}: {each['kind']} {each['metadata']['name']}": each
            for path in sorted(MANIFESTS.glob("*.yml")) for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))}


def install():
    """The folder of modules, or why there is none."""
    if PLACE == pathlib.Path():
        return None, "HEADROOM_NODE_MODULES is not set"
    if not shutil.which("npm") or not shutil.which("node"):
        return None, "npm or node is not installed"
    stamp, wanted = PLACE / "installed", (HERE / "package-lock.json").read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        PLACE.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, PLACE)
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], cwd=PLACE,
                              capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            return None, "npm ci: " + (done.stderr.strip().splitlines() or ["failed"])[-1]
        stamp.write_text(wanted, encoding="utf-8")
    return PLACE / "node_modules", None


MODULES, WHY_NOT = install()


def problems_of(checked):
    done = subprocess.run(["node", HERE / "check.mjs", MODULES], input=json.dumps(checked), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pod_of(each):
    return each["spec"]["template"]["spec"]


class Manifests(unittest.TestCase):
    def setUp(self):
        self.objects = objects()
        self.exporter = self.one("DaemonSet", "headroom-node")
        self.job = self.one("Job", "train")

    def one(self, kind, name):
        return next(each for each in self.objects.values() if (each["kind"], each["metadata"]["name"]) == (kind, name))

    def test_mounts_volumes_and_ports_belong_together(self):
        for each in (self.exporter, self.job):
            pod = pod_of(each)
            containers = pod["containers"] + pod.get("initContainers", [])
            mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
            self.assertEqual(mounted, {volume["name"] for volume in pod["volumes"]})
        container = pod_of(self.exporter)["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(container["command"][:4], ["headroom", "export", "--listen", f":{ports['metrics']}"])
        for probe in ("livenessProbe", "readinessProbe"):
            self.assertEqual(container[probe]["httpGet"], {"path": "/-/healthy", "port": "metrics"})

    def test_exporter_and_job_share_one_folder(self):
        folders = [volume["hostPath"]["path"] for each in (self.exporter, self.job) for volume in pod_of(each)["volumes"]
                   if "hostPath" in volume]
        self.assertEqual(folders, ["/run/headroom", "/run/headroom"])
        pod = pod_of(self.job)
        container = pod["containers"][0]
        variables = {each["name"]: each["value"] for each in container["env"]}
        self.assertEqual(container["volumeMounts"], [{"name": "headroom", "mountPath": "/run/headroom"}])
        user = pod["securityContext"]["runAsUser"]
        self.assertEqual(variables, {"HEADROOM_DIR": f"/run/headroom/headroom-{user}", "HEADROOM_GROUP": "1"})
        group = pod_of(self.exporter)["securityContext"]["runAsGroup"]
        init = pod_of(self.exporter)["initContainers"][0]
        self.assertEqual(init["command"][-1], f"chgrp {group} /run/headroom && chmod 3777 /run/headroom")
        self.assertEqual(init["securityContext"]["runAsGroup"], group)

    def test_nobody_has_more_rights_than_it_needs(self):
        pod = pod_of(self.exporter)
        for container in pod["containers"] + pod["initContainers"] + pod_of(self.job)["containers"]:
            who = container["securityContext"]
            self.assertEqual((who["capabilities"], who["allowPrivilegeEscalation"]), ({"drop": ["ALL"]}, False), container["name"])
            self.assertNotIn("privileged", who)
            self.assertIn("memory", container["resources"]["limits"])
            self.assertLessEqual({"cpu", "memory"}, set(container["resources"]["requests"]))
        for container in pod["containers"] + pod["initContainers"]:
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertTrue(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] != 0)
        self.assertFalse(pod["automountServiceAccountToken"])
        for key in ("hostPID", "hostNetwork", "hostIPC"):
            self.assertNotIn(key, pod)

    def test_monitors_select_what_there_is(self):
        node = self.one("PodMonitor", "headroom-node")
        labels = self.exporter["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(node["spec"]["selector"]["matchLabels"].items(), labels.items())
        self.assertLessEqual(self.exporter["spec"]["selector"]["matchLabels"].items(), labels.items())
        self.assertEqual(node["metadata"]["namespace"], self.exporter["metadata"]["namespace"])
        for monitor in (node, self.one("PodMonitor", "headroom")):
            # A job is called NAMESPACE/NAME: the alerts about exporters go by "headroom" in it.
            self.assertIn("headroom", f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}")
            self.assertEqual([each["honorLabels"] for each in monitor["spec"]["podMetricsEndpoints"]], [False])

    def test_prometheus_is_let_into_the_namespace_of_the_exporters_and_sees_no_more_than_pods(self):
        role, binding = self.one("Role", "headroom-prometheus"), self.one("RoleBinding", "headroom-prometheus")
        namespace = self.exporter["metadata"]["namespace"]
        self.assertEqual((role["metadata"]["namespace"], binding["metadata"]["namespace"]), (namespace, namespace))
        self.assertEqual(role["rules"], [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}])
        self.assertEqual(binding["roleRef"], {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]})
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}])

    def test_a_scrape_has_most_of_its_interval(self):
        for name in ("headroom-node", "headroom"):
            endpoints = self.one("PodMonitor", name)["spec"]["podMetricsEndpoints"]
            self.assertEqual([(each["interval"], each["scrapeTimeout"]) for each in endpoints], [("15s", "10s")])

    def test_every_object_is_what_its_schema_says(self):
        if not MODULES:
            self.skipTest(WHY_NOT)
        found = dict(zip(self.objects, problems_of(list(self.objects.values()))))
        self.assertEqual({name: problems for name, problems in found.items() if problems}, {})
        print(f"schemas: {len(found)} objects: {'; '.join(found)}")

    def test_mistakes_are_found(self):
        if not MODULES:
            self.skipTest(WHY_NOT)
        unknown = copy.deepcopy(self.exporter)
        pod_of(unknown)["hostPid"] = True
        pod_of(unknown)["containers"][0]["securityContext"]["capabilites"] = {"drop": ["ALL"]}
        unknown["specs"] = {}
        wrong = copy.deepcopy(self.exporter)
        pod_of(wrong)["terminationGracePeriodSeconds"] = "soon"
        missing = copy.deepcopy(self.job)
        del missing["spec"]["template"]
        monitor = copy.deepcopy(self.one("PodMonitor", "headroom-node"))
        monitor["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["targetLable"] = "node"
        rules = copy.deepcopy(self.one("PrometheusRule", "headroom"))
        rules["spec"]["groups"][0]["rules"][0]["annotation"] = {}
        other = {"apiVersion": "apps/v1", "kind": "DeamonSet", "metadata": {"name": "x"}}
        found = problems_of([unknown, wrong, missing, monitor, rules, other])
        self.assertCountEqual(found[0], ["/spec/template/spec/hostPid: no such key", "/specs: no such key",
                                         "/spec/template/spec/containers/0/securityContext/capabilites: no such key"])
        self.assertIn("/spec/template/spec/terminationGracePeriodSeconds", str(found[1]))
        self.assertIn("template", str(found[2]))
        self.assertEqual(found[3], ["/spec/podMetricsEndpoints/0/relabelings/0/targetLable: no such key"])
        self.assertEqual(found[4], ["/spec/groups/0/rules/0/annotation: no such key"])
        self.assertIn("there is no such kind", str(found[5]))


if __name__ == "__main__":
    done = unittest.main(exit=False).result
    if done.wasSuccessful() and done.skipped:
        print(f"skipped: the schemas: {WHY_NOT}; the rest was checked")
        sys.exit(77)
    sys.exit(not done.wasSuccessful())

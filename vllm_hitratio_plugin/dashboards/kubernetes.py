"""Kubernetes manifests of the same dashboards and rules.

Labels by which an operator selects are here, in one place: kube-prometheus-stack takes rules and monitors labelled with
the name of its Helm release, the Grafana sidecar takes ConfigMaps labelled `grafana_dashboard`.
"""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.dashboard import Dashboard
from vllm_hitratio_plugin.dashboards.grafana_alerts import FOLDER_TITLE
from vllm_hitratio_plugin.dashboards.links import Links
from vllm_hitratio_plugin.dashboards.panel import Json
from vllm_hitratio_plugin.dashboards.prometheus import groups

#: What kube-prometheus-stack selects by; change it to the name of your release.
RELEASE: Json = {"release": "kube-prometheus-stack"}

SIDECAR: Json = {"grafana_dashboard": "1"}

_COMMON: Json = {"app.kubernetes.io/name": "vllm-hitratio-plugin", "app.kubernetes.io/part-of": "vllm"}

#: Gives vLLM's own names their colon back where Prometheus 2 stored them without.
COLON: Json = {
    "sourceLabels": ["__name__"],
    "regex": "vllm_(.+)",
    "targetLabel": "__name__",
    "replacement": "vllm:$1",
    "action": "replace",
}


def config_map(page: Dashboard, text: str) -> Json:
    """A dashboard for Grafana's sidecar."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": page.uid,
            "labels": {**_COMMON, **SIDECAR},
            "annotations": {"grafana_folder": FOLDER_TITLE},
        },
        "data": {f"{page.uid}.json": text},
    }


def grafana_dashboard(page: Dashboard) -> Json:
    """A dashboard for the Grafana operator, which reads it from the ConfigMap."""
    return {
        "apiVersion": "grafana.integreatly.org/v1beta1",
        "kind": "GrafanaDashboard",
        "metadata": {"name": page.uid, "labels": _COMMON},
        "spec": {
            "folder": FOLDER_TITLE,
            "instanceSelector": {"matchLabels": {"dashboards": "grafana"}},
            "configMapRef": {"name": page.uid, "key": f"{page.uid}.json"},
        },
    }


def prometheus_rule(links: Links) -> Json:
    """The rules for the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "hitratio", "labels": {**_COMMON, **RELEASE}},
        "spec": {"groups": groups(links)},
    }


def pod_monitor() -> Json:
    """Scrapes the pods of vLLM themselves; for servers without a Service."""
    return _monitor("PodMonitor", "podMetricsEndpoints", "http")


def service_monitor() -> Json:
    """Scrapes vLLM through its Service."""
    return _monitor("ServiceMonitor", "endpoints", "http")


def _monitor(kind: str, endpoints: str, port: str) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": "vllm-hitratio", "labels": {**_COMMON, **RELEASE}},
        "spec": {
            "selector": {"matchLabels": {"app": "vllm"}},
            endpoints: [
                {"port": port, "path": "/metrics", "interval": "15s", "metricRelabelings": [COLON]},
            ],
        },
    }


def production_stack_values() -> Json:
    """Values for the Helm chart of vLLM production-stack."""
    return {
        "servingEngineSpec": {
            "modelSpec": [
                {
                    "name": "qwen3-8b",
                    "repository": "example.com/vllm-with-hitratio",
                    "tag": "latest",
                    "modelURL": "Qwen/Qwen3-8B",
                    "replicaCount": 2,
                    "requestCPU": 6,
                    "requestMemory": "16Gi",
                    "requestGPU": 1,
                    "vllmConfig": {
                        "enablePrefixCaching": True,
                        "extraArgs": ["--plugin", "hitratio", "--hitratio-target", "0.6"],
                    },
                }
            ],
            "serviceMonitor": {
                "enabled": True,
                "additionalLabels": RELEASE,
                "interval": "15s",
                "metricRelabelings": [COLON],
            },
        },
        "grafanaDashboards": {
            "enabled": True,
            "labels": SIDECAR,
            "annotations": {"grafana_folder": FOLDER_TITLE},
        },
    }

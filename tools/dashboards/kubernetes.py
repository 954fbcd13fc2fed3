"""The dashboards as ConfigMaps and the rules as a PrometheusRule; the other manifests are written by hand."""

from __future__ import annotations

from tools.dashboards.page import Json
from tools.dashboards.prometheus import groups
from vllm_hitratio_plugin.grafana.names import FOLDER_TITLE

_LABELS = {"app.kubernetes.io/name": "vllm-hitratio-plugin", "app.kubernetes.io/part-of": "vllm"}

#: By which Grafana's sidecar selects ConfigMaps, and kube-prometheus-stack rules (the name of its Helm release).
_SIDECAR, _RELEASE = {"grafana_dashboard": "1"}, {"release": "kube-prometheus-stack"}


def config_map(uid: str, text: str) -> Json:
    """A dashboard for Grafana's sidecar."""
    annotations = {"grafana_folder": FOLDER_TITLE}
    metadata = {"name": uid, "labels": {**_LABELS, **_SIDECAR}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {f"{uid}.json": text}}


def prometheus_rule() -> Json:
    """The rules for the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "hitratio", "labels": {**_LABELS, **_RELEASE}},
        "spec": {"groups": groups()},
    }

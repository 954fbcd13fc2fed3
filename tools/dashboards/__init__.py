"""Generators of grafana/: dashboards, recording rules, alerts and Kubernetes manifests.

``python -m tools.dashboards`` writes the files, ``--check`` reports those that are out of date. The dashboards and
Grafana's alert rules are built with Grafana's own ``grafana-foundation-sdk``, at build time only.
"""

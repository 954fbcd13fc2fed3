"""Dashboards, rules and alerts for an installed package: as files, or pushed into a Grafana.

The files are those of the repository's folder ``grafana/`` (here the link ``generated``), which ``tools/dashboards``
generates. The serving process imports nothing of this.
"""

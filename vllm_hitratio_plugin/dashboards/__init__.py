"""What an SRE installs: dashboards, recording rules and alerts, generated from typed Python.

``python -m vllm_hitratio_plugin.dashboards`` writes the files in ``grafana/``, ``--check`` says whether they are fresh.
Nothing here is imported by the serving process.
"""

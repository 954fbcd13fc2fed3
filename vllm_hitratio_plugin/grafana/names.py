"""Names by which the generated files and a Grafana refer to each other."""

from __future__ import annotations

#: The folder of dashboards and alert rules.
FOLDER_UID, FOLDER_TITLE = "hitratio", "vLLM hit ratio"

#: The group of the alert rules.
GROUP = "hitratio"

#: The Prometheus data source that the alert rules query, as grafana/provisioning names it.
DATA_SOURCE_UID = "prometheus"

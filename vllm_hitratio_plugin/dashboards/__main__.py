"""``python -m vllm_hitratio_plugin.dashboards [--check]``."""

import sys

from vllm_hitratio_plugin.dashboards.generate import main

sys.exit(main())

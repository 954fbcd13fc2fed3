"""``python -m vllm_hitratio_plugin.cli``."""

import sys

from vllm_hitratio_plugin.cli import main

sys.exit(main())

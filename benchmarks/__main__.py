"""`python -m benchmarks`: the plugin's cost."""

import sys

from benchmarks.cost import main

sys.exit(main())

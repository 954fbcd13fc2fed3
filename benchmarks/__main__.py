"""`python -m benchmarks`: all of them, that is one."""

import sys

from benchmarks.cost import main

sys.exit(main())

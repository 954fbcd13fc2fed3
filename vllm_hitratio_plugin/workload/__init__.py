"""From access records to additive statistics: prefix tree, conversations, sliding window."""

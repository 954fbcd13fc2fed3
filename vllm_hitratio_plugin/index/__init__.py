"""What was seen before and how long ago: prefix tree, LRU stack, conversations; no statistics."""

"""What tests share: engines and servers to drive, references to compare with, the pages that tests write."""

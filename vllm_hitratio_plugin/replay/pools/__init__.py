"""Block pools that answer admissions in virtual time."""

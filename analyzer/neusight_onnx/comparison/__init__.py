"""Several runs of one model beside each other: GPUs, sizes, versions, and what would be if something were different.

Nothing is imported here: a single analysis takes what it needs of ``what_if`` and must not pay for the others.
"""

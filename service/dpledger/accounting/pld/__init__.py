"""Privacy-loss distributions: plans fixed in advance, composed exactly, between proven bounds.

``pairs`` and ``items`` know no mechanism; mechanisms say which pairs dominate them; ``catalogue`` puts steps
together, ``plan`` whole plans.
"""

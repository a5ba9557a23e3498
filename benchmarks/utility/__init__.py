"""How good private models are: ours by their rules, and peers, on Adult and Bank."""

"""What the nodes answer: one question per node, and pure parsers of its output."""

"""Flags in, words and an exit code out. Nothing is decided here."""

"""Findings, pure: what stands between a plan and a node that can carry it out."""

"""What the operator writes: cluster, profile, pins and model card, as frozen values."""

"""sparkctl: one dependable OpenAI-compatible endpoint from a desk full of DGX Sparks."""

__version__ = "0.1.0"

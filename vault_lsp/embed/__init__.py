"""Embedding models: which there are, how they come here, and how they run."""

import os

# onnxruntime since 1.32 reports its use to its maker, on Linux too, as soon as it is imported. It reads this once.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

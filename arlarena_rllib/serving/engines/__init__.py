"""Inference engines behind one contract."""

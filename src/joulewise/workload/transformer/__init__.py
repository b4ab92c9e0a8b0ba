"""Transformers built from their shape: kernels, FLOPs, bytes, collectives."""

"""Thin rims to frameworks: optional, imported only where used."""

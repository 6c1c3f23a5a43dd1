"""Foreshock."""

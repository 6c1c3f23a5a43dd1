"""Alerts, pagers and people -> incidents."""

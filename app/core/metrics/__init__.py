"""Samples and counted calls -> lines on a grid: those that are watched, and those that a page or a query asks for."""

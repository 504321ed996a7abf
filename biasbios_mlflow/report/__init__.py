"""Artifacts: tables, figures, html."""

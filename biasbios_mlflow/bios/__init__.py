"""Bios: occupations, readers and the embedded sample."""

"""The names of the benchmark's occupations and genders."""

from __future__ import annotations

__all__ = ["GENDERS", "OCCUPATIONS"]

OCCUPATIONS: tuple[str, ...] = (
    "accountant",
    "architect",
    "attorney",
    "chiropractor",
    "comedian",
    "composer",
    "dentist",
    "dietitian",
    "dj",
    "filmmaker",
    "interior_designer",
    "journalist",
    "model",
    "nurse",
    "painter",
    "paralegal",
    "pastor",
    "personal_trainer",
    "photographer",
    "physician",
    "poet",
    "professor",
    "psychologist",
    "rapper",
    "software_engineer",
    "surgeon",
    "teacher",
    "yoga_teacher",
)
"""The 28 occupations in the order of their ids (0 to 27)."""

GENDERS: tuple[str, str] = ("male", "female")
"""The two genders in the order of their ids (0 and 1)."""

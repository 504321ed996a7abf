"""How accurate an occupation classifier is, and how unfairly it treats women and men."""

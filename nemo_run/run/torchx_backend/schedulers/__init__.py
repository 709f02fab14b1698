"""Names that programs written for NeMo-Run import from here."""

"""Names that programs written for NeMo-Run import from here; there is no torchx behind them."""

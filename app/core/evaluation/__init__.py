"""How good rankings are: against labels, simple baselines and what people said."""

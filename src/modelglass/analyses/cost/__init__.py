"""What a run cost, by formulas for each kernel."""

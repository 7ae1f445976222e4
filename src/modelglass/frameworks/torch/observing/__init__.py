"""What is recorded while a torch model runs: calls, operators, the tensors between them."""

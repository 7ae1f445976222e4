"""modelglass beside other tools: who is right where the answer is known, and who leaves a trace."""

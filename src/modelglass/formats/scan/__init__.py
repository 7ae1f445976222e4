"""Files searched for what loading them would do."""

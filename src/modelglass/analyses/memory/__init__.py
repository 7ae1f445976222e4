"""What a run takes in memory, and what a change makes of it."""

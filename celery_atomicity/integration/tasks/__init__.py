"""What every decorator shares: finding the task, running it, giving it back to its queue."""

"""Other queues, run beside ours. The scripts here run in an environment of their own."""

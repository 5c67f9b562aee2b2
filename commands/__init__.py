"""Commands that do what the API does: rejudges, the queue, exports."""

"""The judge's domain on MongoDB: users, problems, homeworks, submissions, and how results land."""

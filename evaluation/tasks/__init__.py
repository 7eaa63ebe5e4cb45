"""What an encoder is scored on: a file for each kind of task, with how it is scored and how its tables are read."""

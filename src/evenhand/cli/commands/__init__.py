"""What each command does, one file a command, imported when the command runs."""

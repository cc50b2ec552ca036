"""What several test files use: toy models, running commands, servers and ranks, and files of other libraries."""

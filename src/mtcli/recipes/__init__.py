"""Recipes: several `mtcli` commands as one command that can be interrupted, and synthetic pairs."""

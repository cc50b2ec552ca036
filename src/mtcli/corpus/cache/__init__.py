"""The data of a run: built once in its folder, and used again when it resumes."""

"""The look inside one translation: its stages, and their page, text and JSON.

May import inference and what it may import.
"""

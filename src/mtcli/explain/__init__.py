"""`mtcli explain`: every intermediate result of one translation, as a page, text or JSON."""

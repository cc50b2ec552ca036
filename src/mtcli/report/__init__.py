"""Descriptions of a run: its plan, `report.html`, the model card, charts, and `mtcli info`."""

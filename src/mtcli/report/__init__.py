"""What a run will cost and has done: plan, report.html, model card, charts, `mtcli info`.

May import export, inference and what these may import.
"""

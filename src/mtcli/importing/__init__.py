"""Models made elsewhere, as model folders of mtcli: `mtcli import`.

May import `export` (for the layout of Marian's tensors), `storage`, `data`, `nn` and what is below; never `training`.
"""

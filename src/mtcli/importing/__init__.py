"""Import of models from other toolkits as model folders of mtcli: `mtcli import`.

May import `export` (for the layout of Marian's tensors), `storage`, `data`, `nn` and lower packages; never `training`.
"""

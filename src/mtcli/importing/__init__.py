"""Import of models from other toolkits as model folders of mtcli: `mtcli import`."""

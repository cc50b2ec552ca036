"""`mtcli improve`: models trained on the translations of other models too, and the best of them."""

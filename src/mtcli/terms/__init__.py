"""Terms: words that are translated in a given way, in translations and in training pairs."""

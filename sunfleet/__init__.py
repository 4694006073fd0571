"""The pure domain: values in, values out. No clock, no I/O, no randomness, no logging, no Temporal."""

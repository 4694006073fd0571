"""The judge: what users saw, from access logs and the written plan alone. Imports nothing of ours, on purpose."""

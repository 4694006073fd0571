"""A simulated vLLM server: the HTTP contract of vLLM 0.33 (routes, guards, shapes, metrics, drain), no model."""

"""A simulated Kubernetes API server with the controllers that matter here, served over HTTP.

It speaks exactly the verbs, kinds and options that Sunfleet and the virtual kubelet use, to the unchanged
`kubernetes` client; the contract suite runs against it and against a real API server. What it does not know it
refuses.
"""

from sim.cluster.server import SimCluster as SimCluster

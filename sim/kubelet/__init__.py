"""A virtual kubelet: registers GPU nodes with an API server, renews them, and runs their pods.

One module, unchanged against a simulated and a real API server. Containers are local processes with real
probes or, for crowds, engines inside this process.
"""

from sim.kubelet.agent import Kubelet as Kubelet
from sim.kubelet.node import NodeSpec as NodeSpec

"""The cluster as a picture in memory: list, then watch, and never believe that a watch was complete.

Knows of Kubernetes only what its watches are like. Who lists and watches is handed in (`source.Source`); what becomes
of the changes is launch/kubernetes' business.
"""

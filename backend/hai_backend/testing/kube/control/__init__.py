"""Controllers of the fake cluster: scheduler, nodes, evictions, garbage collection, namespaces, StatefulSets."""

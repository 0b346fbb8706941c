"""The launcher of a cluster: ranks are pods. Read docs/contributing/kubernetes.md first.

launcher                the interface to the server: start, kill, events
ranks, nodes            the state of each rank and node, and when a rank counts as terminated (fence)
watches                 the watches of nodes, pods and warnings
create, delete          creates and deletes the objects of a run
pods, pod_failures, foreign_pods   what pods report
api, official_client    requests to the API server
"""

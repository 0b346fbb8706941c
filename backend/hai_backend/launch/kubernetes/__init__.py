"""The launcher of a cluster: ranks are pods. Read backend/docs/kubernetes.md first.

launcher    what the server sees: start, kill, events
ranks       what is known of each rank, and when it counts as gone (fence)
making, ending   objects come, objects go
pods, causes     what a pod says, and in words for users
api, transport, official   how the cluster is asked
"""

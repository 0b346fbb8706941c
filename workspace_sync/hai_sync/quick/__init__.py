"""A push with little to do, without what only others need: no grpc, no click, not even dataclasses."""

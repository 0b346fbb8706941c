"""A push with nothing to do, without what only others need: no grpc, no click, not even dataclasses."""

"""The gRPC API: one package per resource; `server` holds what all calls pass, `request` what all of them parse."""

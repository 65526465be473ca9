"""Environments of this machine for runs elsewhere: `serve_env` and `muster serve-env`."""

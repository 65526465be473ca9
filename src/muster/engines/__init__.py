"""Engines run the nodes of a program. They know neither RL nor the content of messages."""

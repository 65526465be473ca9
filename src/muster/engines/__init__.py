"""What runs the nodes of a program. Knows no reinforcement learning, and not what is sent."""

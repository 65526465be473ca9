"""Complete training programs, built from the public parts; the command line runs them.

This file imports nothing, so that the command line can reject a typo before it loads torch.
"""

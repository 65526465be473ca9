"""Warm-up for workers in step with Box actions; see `warm_in_step`."""

from muster.recipes.warm_in_step import learn_a_little

learn_a_little("Pendulum-v1")

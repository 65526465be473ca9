"""What a worker in step needs whose actions are numbers; see `warm_in_step`."""

from muster.recipes.warm_in_step import learn_a_little

learn_a_little("Pendulum-v1")

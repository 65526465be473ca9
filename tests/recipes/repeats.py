"""A run that was stopped and resumed, beside one that was not."""

import muster


def assert_same_across_a_stop(folder, algo, env, stop, end, **options):
    """Train to `end`, and to `stop` and then on to `end`: both policies have the same bits."""
    once = muster.train(algo, env, run_dir=str(folder / "a"), env_steps=end, **options)
    again = muster.train(algo, env, run_dir=str(folder / "b"), env_steps=stop, **options)
    assert again.policy_sha256 != once.policy_sha256
    resumed = muster.resume(folder / "b", env_steps=end, quiet=True)
    assert resumed.policy_sha256 == once.policy_sha256
    assert (resumed.train_iter, resumed.env_steps) == (once.train_iter, once.env_steps)

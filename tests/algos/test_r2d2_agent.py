"""R2D2 against slow code: its loss, targets and priorities, and that a stored state is a memory."""

import numpy as np
import pytest
import torch
from ends_env import Ends

from muster import OptionError
from muster.algos.dqn import DQNConfig
from muster.algos.r2d2 import R2D2, R2D2Config
from muster.algos.recurrent_dqn import RecurrentDQN
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.rl_utils.rescaling import rescale, undo_rescale
from muster.workers import Collector, evaluate_policy

GAMMA = 0.9
ACTIONS, FIRST_ACTION = int(Ends.action_space.n), int(Ends.action_space.start)
ENVS, STEPS = 3, 11


def make_agent(seed=0, **options):
    options = {
        "hidden": (8, 16),
        "gamma": GAMMA,
        "sequence": 6,
        "overlap": 3,
        "burn_in": 2,
        "n_step": 3,
        **options,
    }
    kind, config = options.pop("kind", (R2D2, R2D2Config))
    return kind(config(**options), Ends.observation_space, Ends.action_space, seed)


def buffer_for(agent, **options):
    return ReplayBuffer(
        600,
        agent.obs_space,
        agent.action_space,
        num_envs=ENVS,
        unit=agent.cfg.unit,
        columns=agent.schema,
        gamma=GAMMA,
        prioritized=True,
        alpha=1.0,
        **options,
    )


def collected(agent, blocks=4, seed=1):
    collector = Collector(agent, make_envs(Ends, ENVS, seed=seed), steps=STEPS)
    eps = np.array([0.0, 0.5, 1.0])
    return [collector.collect(policy_kwargs={"eps": eps}) for _ in range(blocks)]


def seen(module, obs, last):
    """Return what the network reads, [1, ...], of an observation and the action before it."""
    done = torch.zeros(1, ACTIONS)
    if last is not None:
        done[0, last] = 1
    obs = torch.from_numpy(obs[None])
    return obs if module.last_action is None else torch.cat([obs, done], dim=1)


def slow_q(module, obs, last, state):
    """Return q [actions] and the next state, by torch, of one observation."""
    with torch.no_grad():
        q, state = module.steps(seen(module, obs, last), state)
    return q[0].numpy(), state


def empty(agent):
    return torch.zeros(1, agent.model.body.state_width)


def remembered(agent, blocks):
    """Yield (block, t, env, state before, q, q of what followed) of a slow walk of all episodes."""
    for env in range(ENVS):
        state, last = empty(agent), None
        for block in blocks:
            next_obs = block.next_obs
            for t in range(STEPS):
                number = [0 if last is None else 1 + last] if agent.cfg.last_action else []
                before = np.append(state.numpy()[0], number)
                q, state = slow_q(agent.model, block.obs[t, env], last, state)
                last = int(block.action[t, env]) - FIRST_ACTION
                follows, _ = slow_q(agent.model, next_obs[t, env], last, state)
                yield block, t, env, before, q, follows
                if block.terminated[t, env] or block.truncated[t, env]:
                    state, last = empty(agent), None


@pytest.mark.parametrize("last_action", [False, True])
def test_the_state_that_is_stored_is_what_was_remembered_before_each_step(last_action):
    agent = make_agent(last_action=last_action)
    blocks = collected(agent)
    for block, t, env, before, *_ in remembered(agent, blocks):
        # Not the same bits: torch and the compiled cell multiply in different orders.
        np.testing.assert_allclose(block.columns["state"][t, env], before, atol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("rescales", [False, True])
def test_priorities_of_an_actor_are_the_td_errors_of_a_slow_loop(n, rescales):
    agent = make_agent(n_step=n, rescale=rescales)
    blocks = collected(agent)
    walk = {(id(b), t, env): (q, after) for b, t, env, _, q, after in remembered(agent, blocks)}
    kinds = set()
    for block in blocks:
        kinds |= set(zip(block.terminated.flat, block.truncated.flat, strict=True))
        for t in range(STEPS):
            for env in range(ENVS):
                total = 0.0
                for k in range(n):
                    now = t + k
                    total += GAMMA**k * block.reward[now, env]
                    if block.terminated[now, env]:
                        break
                    if block.truncated[now, env] or k + 1 == n or now + 1 == STEPS:
                        best = walk[id(block), now, env][1].max()
                        total += GAMMA ** (k + 1) * (undo_rescale(best) if rescales else best)
                        break
                target = rescale(total) if rescales else total
                q = walk[id(block), t, env][0][block.action[t, env] - FIRST_ACTION]
                found = block.columns["priority"][t, env]
                assert found == pytest.approx(abs(q - target), rel=1e-4, abs=1e-5)
    assert len(kinds) == 4, "terminated, truncated, both and neither were there"


def test_unrolling_a_stored_sequence_gives_the_q_that_was_acted_by():
    agent = make_agent()
    blocks = collected(agent)
    buffer = buffer_for(agent)
    for block in blocks:
        buffer.push(block)
    acted = {block.obs[t, env].tobytes(): q for block, t, env, _, q, _ in remembered(agent, blocks)}
    batch = buffer.sample(64)
    q = agent._net.unroll(batch.obs, batch.columns["state"][:, 0], batch.action - FIRST_ACTION)
    compared = 0
    for b, t in np.argwhere(batch.valid):
        np.testing.assert_allclose(q[b, t], acted[batch.obs[b, t].tobytes()], atol=1e-5)
        compared += t > 0 and not batch.columns["state"][b, 0].any()
    assert compared and batch.columns["state"][:, 0].any()


def slow_loss(agent, target_module, batch):
    """Return the loss by autograd, and the error of each step [B, L], sequence by sequence."""
    cfg, errors, total = agent.cfg, np.zeros(batch.learn.shape), []
    rescales = getattr(cfg, "rescale", False)
    for b in range(len(batch.action)):
        learnt = np.flatnonzero(batch.learn[b])
        q, next_q = [], []
        for module, found in ((agent.model, q), (target_module, next_q)):
            stored = batch.columns["state"][b, 0]
            width = module.body.state_width
            state = torch.from_numpy(stored[None, :width])
            last = int(stored[-1]) - 1 if cfg.last_action and stored[-1] else None
            for t in range(batch.obs.shape[1]):
                if t == learnt[0]:
                    state = state.detach()
                out, state = module.steps(seen(module, batch.obs[b, t], last), state)
                found.append(out[0])
                if t < batch.action.shape[1]:
                    last = int(batch.action[b, t]) - FIRST_ACTION
        for t in learnt:
            at = batch.ahead[b, t]
            chosen = q[at].argmax() if cfg.double else next_q[at].argmax()
            value = float(next_q[at][chosen].detach())
            value = undo_rescale(value) if rescales else value
            target = batch.reward[b, t] + batch.discount[b, t] * value
            target = float(rescale(target) if rescales else target)
            error = q[t][batch.action[b, t] - FIRST_ACTION] - target
            errors[b, t] = float(error.detach())
            square = 0.5 * error**2
            loss = torch.where(error.abs() > 1, error.abs() - 0.5, square) if cfg.huber else square
            total.append(float(batch.weight[b]) * loss)
    return torch.stack(total).mean(), errors


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "gru", "dueling": False, "double": False},
        {"rescale": False, "huber": True, "beta_start": 0.7},
        {"burn_in": 0, "overlap": 0, "last_action": False},
        {"kind": (RecurrentDQN, DQNConfig), "model": "gru", "double": True},
    ],
)
def test_loss_gradient_and_priorities_are_those_of_autograd_in_a_slow_loop(options):
    agent = make_agent(**options)
    other = make_agent(seed=5, **options)
    agent._target_weights.load_state_dict(other.parts()["policy"])
    buffer = buffer_for(agent)
    for block in collected(agent):
        buffer.push(block)
    batch = buffer.sample(16, beta=agent.cfg.beta_start)
    assert batch.learn.any() and (batch.discount[batch.learn] == 0).any()
    agent.model.zero_grad()
    loss, errors = slow_loss(agent, other.model, batch)
    loss.backward()
    expected = {n: p.grad.numpy().copy() for n, p in agent.model.named_parameters()}
    gradient, metrics = agent.gradient(batch)
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    for name, found in gradient.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    size = np.abs(errors)
    mixed = [0.9 * size[b].max() + 0.1 * size[b][batch.learn[b]].mean() for b in range(len(size))]
    np.testing.assert_allclose(agent.td_error, mixed, rtol=1e-4, atol=1e-5)


def test_several_updates_at_once_are_the_same_bits_as_one_by_one():
    together, alone = make_agent(target_update=2), make_agent(target_update=2)
    buffer = buffer_for(together)
    for block in collected(make_agent(seed=3)):
        buffer.push(block)
    batches = [buffer.sample(4) for _ in range(3)]
    whole = (
        type(batches[0])
        .gather([(np.arange(4 * k, 4 * k + 4), each) for k, each in enumerate(batches)])
        .reshape((3, 4))
    )
    together.update_many(whole)
    for k, each in enumerate(batches):
        alone.update(each)
        np.testing.assert_allclose(together.td_error[k], alone.td_error, rtol=1e-6)
    assert together.policy_sha256() == alone.policy_sha256()


def test_evaluating_does_not_disturb_what_exploring_remembers():
    plain, disturbed = make_agent(), make_agent()
    one = Collector(plain, make_envs(Ends, ENVS, seed=1), steps=4)
    two = Collector(disturbed, make_envs(Ends, ENVS, seed=1), steps=4)
    for _ in range(5):
        first, second = one.collect(), two.collect()
        np.testing.assert_array_equal(first.columns["state"], second.columns["state"])
        evaluate_policy(disturbed, Ends, episodes=4)


def test_a_new_episode_or_other_environments_find_no_memory(rng):
    agent = make_agent()
    obs = rng.normal(size=(2, 3)).astype(np.float32)
    agent.act(obs)
    agent.act(obs, first=np.array([True, False]))
    once, twice = agent._acting.copy()
    fresh = make_agent()
    fresh.act(obs)
    np.testing.assert_array_equal(fresh._acting[0], once)
    assert not np.array_equal(fresh._acting[1], twice)
    agent.act(obs[:1])
    np.testing.assert_allclose(agent._acting[0], once, atol=1e-6)
    agent.forget()
    assert len(agent._acting) == 0


def test_its_parts_hold_what_exploring_remembers():
    agent, other = make_agent(), make_agent(seed=9)
    collector = Collector(agent, make_envs(Ends, ENVS, seed=1), steps=5)
    collector.collect()
    other.load_parts(agent.parts())
    obs = np.ones((ENVS, 3), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(agent.explore(obs, 0.5), other.explore(obs, 0.5))
        np.testing.assert_array_equal(agent._exploring, other._exploring)


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"overlap": 80}, "overlap=80 and sequence=80", "overlap=40"),
        ({"burn_in": 41}, "burn_in=41 and overlap=40", "burn_in=40"),
        ({"model": "mlp"}, "model='mlp' is not possible", 'model="lstm"'),
        ({"hidden": ()}, "model=lstm and hidden=()", "hidden=(64,)"),
        ({"rescale_eps": 0.0}, "rescale_eps=0.0 is not possible", "rescale_eps=0.001"),
        ({"priority_mix": 2.0}, "priority_mix=2.0 is not possible", "priority_mix=0.5"),
    ],
)
def test_options_without_sense_are_refused(options, what, fix):
    with pytest.raises(OptionError) as caught:
        R2D2Config(**options)
    assert str(caught.value).startswith(what) and str(caught.value).endswith(fix)


def test_sequences_that_replay_cannot_hold_are_refused():
    with pytest.raises(OptionError, match="sequence=80 and buffer_size=1200"):
        R2D2Config(buffer_size=1_200, learning_starts=100).check_run(0, 8)


def test_a_network_of_the_users_own_is_refused():
    with pytest.raises(OptionError, match="is not possible with R2D2"):
        R2D2(R2D2Config(), Ends.observation_space, Ends.action_space, model=torch.nn.Linear)

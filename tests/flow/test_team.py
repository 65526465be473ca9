"""`Team`: arrays that all nodes see, a barrier, and nodes that are killed between any two of them.

The programs are in this file, because a new process has to find them in one.
"""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from muster import NodeError, OptionError, Parallel, Task
from muster.flow import Team
from muster.framework.node import advance

pytestmark = pytest.mark.timeout(600)

LONG = 200.0


def run(program, *args, n=2, **runner):
    return Parallel.runner(n, **{"grace": 5.0, **runner})(program, *args)


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.001)


# ---- arrays

FIELDS = {
    "flag": ((1,), np.bool_),
    "bytes": ((3,), "u1"),
    "none": ((2, 0), "f4"),
    "doubles": ((5, 3), np.float64),
    "scalar": ((), np.int64),
    "odd": ((7, 11), "i2"),
    "nothing_at_the_end": ((0,), np.float64),
}


def sees_everything():
    """Every node looks at zeros, writes a row of its own, and reads all rows."""
    team = Team({**FIELDS, "rows": ((8, 1000), "f4"), "zero": ((8,), np.bool_)})
    all_zero = all(not team[name].any() for name in (*FIELDS, "rows"))
    team["zero"][team.index] = all_zero  # nobody writes anything else before all have looked
    team.meet()
    team["rows"][team.index] = team.index + 1
    team.meet()
    found = team["rows"][: team.size, [0, 500, 999]].tolist()
    lines = [team[name].ctypes.data % 64 for name in FIELDS if team[name].size]
    return team["zero"][: team.size].tolist(), found, lines, team.index, team.size, team.resumed


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_arrays_are_zero_at_first_and_what_one_writes_all_see(n):
    for node, (zero, found, lines, index, size, resumed) in enumerate(run(sees_everything, n=n)):
        assert zero == [True] * n
        assert found == [[each + 1.0] * 3 for each in range(n)]
        assert set(lines) == {0}, "an array begins within a cache line of another"
        assert (index, size, resumed) == (node, n, False)


def test_a_program_by_itself_is_a_team_of_one():
    team = Team(FIELDS)
    assert (team.index, team.size, team.resumed, team.arrivals) == (0, 1, False, 0)
    for name, (shape, dtype) in FIELDS.items():
        assert team[name].shape == shape and team[name].dtype == np.dtype(dtype)
        assert not team[name].any() and team[name].flags.aligned and team[name].flags.writeable
    for number in range(100):
        team.meet((number, -number))
        assert team.note == (number, -number, 0, 0, 0, 0, 0)
    assert team.arrivals == 100


def test_arrays_do_not_overlap():
    team = Team(FIELDS)
    for name, array in ((name, team[name]) for name in FIELDS):
        array[...] = 1
        for other in FIELDS:
            assert other == name or not team[other].any(), f"{name} and {other} overlap"
        team.meet((3,))
        assert (array == 1).all(), "arriving changed an array"
        array[...] = 0
    assert team.note[0] == 3, "writing an array changed a note"


def test_two_programs_by_themselves_have_nothing_in_common():
    one, other = Team(FIELDS), Team(FIELDS)
    one["doubles"][:] = 5
    assert not other["doubles"].any()


def test_a_name_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        Team(FIELDS)["absent"]


# ---- notes


def test_a_note_is_what_was_noted_last_and_nothing_of_older_ones():
    team = Team({})
    team.arrive((1, 2, 3, 4, 5, 6, 7))
    team.arrive((8, 9, 10, 11, 12, 13, 14))
    team.arrive((-1, 2**62))
    assert team.note == (-1, 2**62, 0, 0, 0, 0, 0)
    team.arrive()
    assert team.note == (0,) * 7


@pytest.mark.parametrize("before", [0, 1])
def test_a_note_that_is_too_long_is_refused_and_spoils_nothing(before):
    team = Team({"next": ((4,), np.int64)})
    for _ in range(before):
        team.arrive((7,) * 7)
    team.arrive((1, 2, 3))
    with pytest.raises(OptionError, match="8"):
        team.arrive((9,) * 8)
    assert team.note == (1, 2, 3, 0, 0, 0, 0) and team.arrivals == before + 1
    assert not team["next"].any()


# ---- the barrier


def meets(rounds, seed):
    """Count what each node has written after every meeting; return every violation."""
    team = Team({"count": ((8,), np.int64)})
    count, me, rng = team["count"], team.index, random.Random(f"{seed} {team.index}")
    wrong = []
    for number in range(1, rounds + 1):
        if rng.random() < 0.1:
            time.sleep(rng.choice([0.0001, 0.001, 0.004]))
        count[me] = number
        team.meet((number,))
        seen = count[: team.size].tolist()
        # Nobody is behind; and nobody can be two meetings ahead, as this node was not there.
        if min(seen) < number or max(seen) > number + 1:
            wrong.append((number, seen))
    return wrong, team.arrivals, team.note[0]


@pytest.mark.parametrize(("n", "rounds"), [(1, 1000), (2, 600), (3, 400), (4, 300)])
def test_nobody_passes_before_all_have_arrived(n, rounds):
    assert run(meets, rounds, n, n=n) == [([], rounds, rounds)] * n


def arrives_and_waits_later():
    """Nodes that arrive do not wait; the slow one is seen by those who ask later."""
    team = Team({"order": ((2,), np.float64)})
    if team.index == 0:
        team.arrive()
        early = time.monotonic()
        team.wait()
        return team["order"][1] > early, team["order"][1] > 0
    time.sleep(0.3)  # being late is what this is about
    team["order"][1] = time.monotonic()
    team.meet()
    return True, True


def test_to_arrive_is_not_to_wait():
    assert run(arrives_and_waits_later) == [(True, True)] * 2


# ---- nodes that are killed


class Deadly:
    """A number that kills who uses it: in the middle of writing a note."""

    def __index__(self):
        os.kill(os.getpid(), signal.SIGKILL)
        return 0


def survives(rounds, deaths):
    """Add up what all nodes write in every round, through any number of deaths.

    `deaths[node]` are (round, where) of its incarnations, one each.
    """
    team = Team({"row": ((2, 8), np.int64), "lives": ((8,), np.int64)})
    me, row = team.index, team["row"]
    life = int(team["lives"][me])
    team["lives"][me] = life + 1
    mine = deaths.get(me, [])
    dies = mine[life] if life < len(mine) else (-1, "")

    def perhaps_die(number, where):
        if dies == (number, where):
            os.kill(os.getpid(), signal.SIGKILL)

    first, total = 0, 0
    if team.arrivals:
        assert team.resumed
        first, total = team.note[:2]
        team.wait()
        total += int(row[first % 2, : team.size].sum())
        first += 1
    for number in range(first, rounds):
        perhaps_die(number, "before writing")
        row[number % 2, me] = (number + 1) * (me + 1)
        perhaps_die(number, "before arriving")
        note = (number, total)
        team.arrive((number, Deadly()) if dies == (number, "while noting") else note)
        perhaps_die(number, "before waiting")
        team.wait()
        perhaps_die(number, "before reading")
        total += int(row[number % 2, : team.size].sum())
    return total, team.arrivals, life


PLACES = ["before writing", "before arriving", "while noting", "before waiting", "before reading"]


def expected(rounds, n):
    return sum(range(1, rounds + 1)) * sum(range(1, n + 1))


@pytest.mark.parametrize("where", PLACES)
def test_a_node_that_is_killed_goes_on_between_the_same_two_meetings(where):
    deaths = {0: [(0, where), (31, where)], 1: [(17, where)]}
    found = run(survives, 40, deaths, n=3, on_failure="restart")
    assert found == [(expected(40, 3), 40, len(deaths.get(node, []))) for node in range(3)]


def test_all_nodes_may_be_killed_in_the_same_round():
    rng = random.Random(5)
    deaths = {node: [(round_, rng.choice(PLACES)) for round_ in (3, 11)] for node in range(3)}
    found = run(survives, 20, deaths, n=3, on_failure="restart")
    assert found == [(expected(20, 3), 20, 2)] * 3


def is_killed_while_it_sleeps():
    """Node 0 kills node 1, which sleeps at the barrier, and comes there only then."""
    team = Team({"pid": ((2,), np.int64), "value": ((2,), np.int64)})
    me = team.index
    pids = team["pid"]
    pids[me] = os.getpid()
    if me == 1:
        if not team.resumed:
            team["value"][1] = 11
            team.arrive((77,))
        team.wait()
        return team.note[0], team.resumed, team["value"].tolist()
    until(lambda: pids[1])
    victim = int(pids[1])
    time.sleep(0.2)  # it is asleep by then
    os.kill(victim, signal.SIGKILL)
    until(lambda: pids[1] != victim)
    team["value"][0] = 10
    team.meet()
    return team.resumed, team["value"].tolist()


def test_a_node_that_is_killed_asleep_has_its_note_and_waits_on():
    first, second = run(is_killed_while_it_sleeps, on_failure="restart")
    assert first == (False, [10, 11])
    assert second == (77, True, [10, 11])


# ---- the end


def one_fails(how):
    team = Team({})
    for number in range(10):
        if team.index == 1 and number == 5:
            if how == "raises":
                raise ValueError("no good at all")
            if how == "returns":
                return number
            os.kill(os.getpid(), signal.SIGKILL)
        team.meet()
    return 10


@pytest.mark.parametrize(
    ("how", "node", "cause"),
    [("raises", 1, "raised"), ("returns", 0, "raised"), ("dies", 1, "killed")],
)
def test_who_waits_for_one_that_will_not_come_hears_of_it_in_seconds(how, node, cause):
    started = time.monotonic()
    with pytest.raises(NodeError) as caught:
        run(one_fails, how, n=3 if how != "returns" else 2, grace=20.0)
    assert time.monotonic() - started < 10
    assert (caught.value.node, caught.value.cause) == (node, cause)


def agrees_on_its_end(directory, parent, at, number):
    """Loop until node 0 has heard of a signal; write down in which loop this node ended."""
    with Task() as task:
        team = Team({"decision": ((2,), np.int64), "loops": ((2, 3), np.int64)})
        me = team.index

        def step(ctx):
            loop = ctx.total_step
            if me == 1 and loop == at:
                os.kill(parent, number)
            time.sleep(0.001)
            team["loops"][loop % 2, me] = loop
            if me == 0:
                team["decision"][loop % 2] = task.told_to_finish is not None
            team.meet((loop,))
            assert (team["loops"][loop % 2] == loop).all(), "somebody is in another loop"
            ctx.finish = bool(team["decision"][loop % 2])
            yield
            Path(directory, str(me)).write_text(str(loop))

        ctx = task.use(step).run(2000, end="agreed")
    return ctx.total_step


@pytest.mark.parametrize("at", [1, 40])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_not_break_a_team_that_agrees_on_its_end(tmp_path, at, number):
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught:
        run(agrees_on_its_end, tmp_path, os.getpid(), at, number, n=3)
    if number == signal.SIGTERM:
        assert caught.value.code == 143
    loops = {int((tmp_path / str(node)).read_text()) for node in range(3)}
    assert len(loops) == 1 and at <= loops.pop() < 1999


def waits_long():
    with Task() as task:
        team = Team({})

        def step(ctx):
            until_then = time.monotonic() + 2.0
            while team.index == 1 and time.monotonic() < until_then:
                time.sleep(0.02)
                advance()
            team.meet()

        task.use(step).run(1, end="agreed")
    return team.arrivals


def test_a_long_wait_is_not_taken_for_a_hang():
    assert run(waits_long, hang_after=0.5) == [1, 1]

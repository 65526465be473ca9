"""CONTRACT, section Labels."""

import pytest

from muster import MusterWarning, OptionError, Task


def runs(task, filter_labels):
    done = []
    task.use(lambda ctx: done.append(1), filter_labels=filter_labels).use(lambda ctx: None).run(1)
    return bool(done)


@pytest.mark.parametrize(
    ("async_mode", "labels"), [(False, {"standalone"}), (True, {"standalone", "async"})]
)
def test_a_task_alone_is_standalone_and_async_in_async_mode(async_mode, labels):
    assert Task(async_mode=async_mode).router.labels == labels


def test_labels_come_from_the_task_and_from_the_environment(monkeypatch):
    monkeypatch.setenv("MUSTER_LABELS", "gpu, big memory ,,")
    assert Task(labels=["fast"]).router.labels == {"standalone", "fast", "gpu", "big memory"}


@pytest.mark.parametrize(
    ("filter_labels", "expected"),
    [
        (None, True),
        (["standalone", "node.0"], True),
        (["node.0"], False),
        (["role.*"], False),
        (["stand*"], True),
        ("standalone", True),
        (["gpu", "role.actor"], True),
        (["GPU"], False),
    ],
)
def test_filter_labels_is_any_of_with_globs(filter_labels, expected):
    assert runs(Task(labels=["gpu"]), filter_labels) is expected


def test_a_label_that_is_nearly_one_that_is_here_is_pointed_out():
    with pytest.warns(
        MusterWarning, match="filter_labels has 'standalonee'; did you mean 'standalone'"
    ):
        assert not runs(Task(), ["standalonee"])


@pytest.mark.parametrize("labels", [3, [3], [""], [None], "standalone,node.0"])
def test_labels_that_are_none_are_refused(labels):
    with pytest.raises(OptionError) as caught:
        Task().use(print, filter_labels=labels)
    assert str(caught.value).startswith(f"filter_labels={labels!r} is not possible")
    assert 'try: filter_labels=["standalone", "role.actor"]' in str(caught.value)
    with pytest.raises(OptionError, match="labels="):
        Task(labels=labels)


def test_no_labels_of_its_own_are_fine_for_a_task_and_not_for_a_filter():
    assert Task(labels=[]).router.labels == {"standalone"}
    with pytest.raises(OptionError, match="an empty list matches nowhere; None matches all"):
        Task().use(print, filter_labels=[])


def test_spaces_around_a_label_do_not_count():
    assert runs(Task(labels=[" gpu"]), ["gpu "])

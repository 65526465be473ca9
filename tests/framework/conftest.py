"""What several files about the loop need."""

import pytest

pytest.register_assert_rewrite("async_helpers", "model_walk", "model_runs")


class Trace(list):
    """What happened, in order."""

    def plain(self, name):
        def middleware(ctx):
            self.append(name)

        return middleware

    def generator(self, name):
        def middleware(ctx):
            self.append(f"{name} forward")
            try:
                yield
            except GeneratorExit:
                self.append(f"{name} closed")
                raise
            self.append(f"{name} back")

        return middleware


@pytest.fixture
def trace():
    return Trace()

"""Hooks that tests name as module:function."""

notes = []


def halves(ctx):
    ctx.log("own/halves", ctx.env_step / 2)


def around(ctx):
    begun = ctx.get("env_step", 0)
    yield
    ctx.log("own/steps_of_loop", ctx.env_step - begun)


def stop_early(ctx):
    if ctx.env_step >= 1_000:
        ctx.finish = True


async def later(ctx):
    pass


NO_HOOK = 3

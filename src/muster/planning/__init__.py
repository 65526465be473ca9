"""Predicts how fast a run would train on other hardware: `muster.plan` and `muster plan`.

    measuring   measurement.py, exchange_time.py, calibrate.py -> RunCosts (costs.py)
    mathematics shape.py, hardware.py, stragglers.py, in_step_model.py, role_model.py, forecast.py
    printing    result.py

The mathematics imports neither torch nor an environment; docs/plan.md has its equations. The
package is not called `plan`, because `muster.plan` is the function.
"""

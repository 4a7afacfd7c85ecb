# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From a run to a figure of your own
#
# Two jobs share one link. The figure shows the time of each iteration of each job, with and without MLTCP.
# A job's iteration ends with its slowest worker.

# %%
import matplotlib.pyplot as plt

import testbed

results = testbed.run(topo="dumbbell", jobs=2, system=["reno", "mltcp_reno"], iterations=15, seeds=2, on="flow")
iterations = results.table("iterations").groupby(["system", "seed", "job", "iteration"])
seconds = iterations["end_s"].max() - iterations["start_s"].min()

# %%
figure, axes = plt.subplots()
seconds.groupby(["iteration", "system"]).mean().unstack("system").plot(ax=axes)
axes.set(xlabel="iteration", ylabel="iteration time (s), mean over jobs and seeds")
figure.savefig("own_figure.png")

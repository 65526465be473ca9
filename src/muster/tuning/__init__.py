"""Studies: many runs of one algorithm with different options, and which of them is best.

    space -> searching -> conduct (processes, pruning) -> ranking
                              └ study: study.json, from which a study resumes

Not called `tune`, because `muster.tune` is the function.
"""

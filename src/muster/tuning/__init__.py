"""Studies: many runs of one algorithm that differ in some options, and which of them is best.

    space -> searching -> conduct (processes, pruning) -> ranking
                              └ study: study.json, which a study is resumed from

Not called `tune`, because `muster.tune` is the function.
"""

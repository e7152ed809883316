"""How much of what a question needs is found, ours beside rivals, on all domains in one run: `python -m bench.finding`.

No model writes or reads. For each question with known evidence:

    @5 ... @50   gold notes among the best 5, 10, 20 and 50
    cluster      gold notes inside the cluster that an action gets. A long note of which only a part is shown is inside
                 where that part holds 60 % of those words of the answer that the whole note holds
    32 ... 1024  whether the answer survives in so many tokens (`bench.extract`): for ours in what Extract shows and in
                 what `recall` gives by default, for a rival in its best notes as rendered, cut where the budget ends

Every finder gets the same turns. Shares are of all gold notes of a question, then the mean over questions.
"""

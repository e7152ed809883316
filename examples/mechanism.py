"""Why a record helps under a tight budget and hurts under a loose one: the two effects, taken apart and added up."""

import numpy as np

from retcon.lab.mechanism import Swap, decompose, example, joint, localize, plug_in, sweep

# Four queries, equally likely. Two raw notes fit the budget, and answer the second and third query.
asked = {
    "F": np.full(4, 0.25),
    "G": np.array([False, True, True, False]),  # a raw note fits
    "H": np.array([True, True, False, False]),  # the record speaks
    "J": np.array([False, True, False, False]),  # the record takes the raw note's place
    "before": np.array([0.0, 1.0, 0.5, 0.0]),  # what the raw notes are worth, from -1 to 1
    "record": np.array([0.75, 0.5, 0.0, 0.0]),  # what the record is worth
}
found = decompose(localize(**asked))
print("one swap, by hand")
for name, term in (("coverage", found.coverage), ("replacement", found.replacement)):
    print(f"  {name:11} {term.probability:.2f} x {term.mean:+.2f} = {term.value:+.4f}")
print(f"  gain {found.gain:+.4f}, spillover {found.spillover:+.4f}")

# The third query's note is crowded out, although the record has nothing to say on it: the two terms miss that.
spilled = decompose(Swap(**asked, after=np.array([0.75, 0.5, 0.0, 0.0])))
print(f"  with the third note crowded out: gain {spilled.gain:+.4f}, of which spillover {spilled.spillover:+.4f}")

population = example()
whole, gone = sweep(population), sweep(population, evict=True)
print("\nbudget  raw fits  merge: coverage  replacement    gain   action   if raw notes leave")
for b, budget in enumerate(whole.budgets):
    effects = f"{whole.coverage[b, 0]:+15.3f}  {whole.replacement[b, 0]:+11.3f}  {whole.gain[b, 0]:+.3f}"
    print(f"{budget:6}  {whole.grounded[b]:8.0%}  {effects}   {whole.actions[b]:9}{gone.actions[b]}")
for name in whole.operators:
    print(f"{name} stops gaining at about {whole.crossings(name)[0]:.0f} tokens")

# The rule that knows only the two terms, judged by what happens where raw notes leave with the swap.
trusting = joint(whole.gain).action
true = np.column_stack([np.zeros(len(gone.budgets)), gone.gain])  # retention first, with a gain of 0
got = true[np.arange(len(true)), trusting]
print(f"\nleaving spillover out costs up to {(true.max(axis=1) - got).max():.3f} at one budget")

# Predicted utilities that are off by at most epsilon cost at most twice that.
guess = plug_in(predicted=[0.62, 0.61, 0.40], true=[0.55, 0.66, 0.45])
print(f"a guess that is off by {guess.epsilon:.2f} lost {guess.regret:.2f}; it could have lost {guess.bound:.2f}")

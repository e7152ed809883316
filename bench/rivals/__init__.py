"""Side by side with what people would pick instead: the same questions, budgets, reader and judges for all of them.

    systems -> contexts (contexts.py) -> replies and verdicts (answers.py) -> rows (rows.py) -> tables (page.py)

A rival is one short file in `systems/`, behind one interface (`base.Rival`). What each needs of a model it gets from an
OpenAI-compatible endpoint; `server.py` is one that answers many callers in one batch.
"""

"""What rivals cost, without a language model: time of adds and searches, memory, disk, imports, packages; in one run.

systems.py (who) -> worker.py (one of them in its process, stores/) <- process.py (asks it, within limits)
turns.py (the same notes and queries, in turn with ours) -> rivals_speed.json -> page.py (tables, goals)
"""

"""Count tokens your own way: any callable from text to a whole number; the budget holds for it exactly."""

from retcon import Memory


def bytes_over_four(text: str) -> int:
    """A budget in quarter kilobytes, say."""
    return -(-len(text.encode()) // 4)


with Memory(":memory:", counter=bytes_over_four) as memory:
    memory.add("Día 3: llegamos a Puerto Natales a las 18:20 y cenamos merluza.", timestamp="2026-01-14")
    memory.add("第四天：去看了格雷冰川，风很大。", timestamp="2026-01-15")
    for budget in (8, 16, 40):
        recall = memory.recall("¿A qué hora llegamos a Puerto Natales?", budget=budget)
        print(f"{recall.tokens:3} of {budget}: {recall.text}")
        assert recall.tokens == bytes_over_four(recall.text) <= budget

"""Claude's memory tool on a retcon memory: what it writes into files, recall finds, and every version stays."""

from retcon import Memory
from retcon.integrations.anthropic import RetconMemoryTool

with Memory(":memory:") as memory:
    tool = RetconMemoryTool(memory, budget=256, user_id="ann")
    # With a key: Anthropic().beta.messages.tool_runner(model="claude-sonnet-5-5", tools=[tool], ...).until_done()
    # Here the commands that Claude would send are called by hand.
    tool.call({"command": "create", "path": "/memories/pets.md", "file_text": "Ann's cat is called Pixie.\n"})
    tool.call({"command": "str_replace", "path": "/memories/pets.md", "old_str": "Pixie", "new_str": "Pixel"})
    print(tool.call({"command": "view", "path": "/memories"}))
    print(tool.call({"command": "view", "path": "/memories/pets.md"}))

    print("recalled:", memory.recall("What is Ann's cat called?", budget=32, user_id="ann").text)
    (file,) = memory.get_all(user_id="ann")
    print("versions:", [version.text for version in memory.history(file.id)])

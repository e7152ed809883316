"""The same memory from asyncio code: every call is awaited, several run at once."""

import asyncio

from retcon import AsyncMemory


async def main() -> None:
    async with AsyncMemory(":memory:") as memory:
        await asyncio.gather(
            memory.add("Team lunch moved to Thursday at 12:30.", user_id="ann"),
            memory.add("The demo is on Friday, room 4.07.", user_id="ann"),
            memory.add("Lena prefers tea.", user_id="bob"),
        )
        lunch, demo = await asyncio.gather(
            memory.recall("When is lunch?", budget=32, user_id="ann"),
            memory.recall("Which room is the demo in?", budget=32, user_id="ann"),
        )
        print(lunch.text)
        print(demo.text)
        assert "12:30" in lunch.text
        assert "4.07" in demo.text


asyncio.run(main())

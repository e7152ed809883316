"""The MCP server: a memory offered to agents as tools, over standard input or HTTP. Needs the extra [mcp].

shapes.py     what the tools take and give back
desk.py       a memory as one server offers it: whose notes, and what each tool does
tools.py      the tools as a model reads them
server.py     the tools, the resource and the prompt, answered in threads
transport.py  standard input and output, streamable HTTP, the key, the end
"""

from retcon.mcp.desk import Desk
from retcon.mcp.server import SECONDS, Workers, build
from retcon.mcp.transport import PATH, Address, serve_http, serve_stdio

__all__ = ["PATH", "SECONDS", "Address", "Desk", "Workers", "build", "serve_http", "serve_stdio"]

"""The MCP server: a memory offered to agents as tools, over standard input or HTTP. Needs the extra [mcp].

schema.py     what the tools take and give back
verbs.py      a memory as one server offers it: whose notes, and what each tool does
tools.py      the tools as a model reads them, and which of them to offer
majors.py     what differs between the majors of the mcp package
server.py     the tools, the resource and the prompt, answered in threads
transport.py  standard input and output, streamable HTTP, the key, the end
"""

from retcon.mcp.server import SECONDS, ToolWorkers, build
from retcon.mcp.tools import choose
from retcon.mcp.transport import PATH, Address, serve_http, serve_stdio
from retcon.mcp.verbs import ToolVerbs

__all__ = ["PATH", "SECONDS", "Address", "ToolVerbs", "ToolWorkers", "build", "choose", "serve_http", "serve_stdio"]

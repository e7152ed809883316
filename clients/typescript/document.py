"""Prints the OpenAPI document of the service as it is in the tree: what the types of the client are made from."""

import json

from retcon import Memory
from retcon.server import create_app
from retcon.server.openapi import document

with Memory(":memory:") as memory:
    print(json.dumps(document(create_app(memory)), indent=1))

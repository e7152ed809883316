"""What a memory is given -> the parts it works with, or one line on what is wrong with it."""

from __future__ import annotations

import os
from typing import cast

from retcon.errors import InputError, MissingExtraError, quote
from retcon.model import Embed
from retcon.model.embedders import OFFLINE
from retcon.perform import GUARDS, Guard
from retcon.route import SHIPPED, Router, default_router
from retcon.store.places import is_postgres

MODELS = ("model", "reader")  # of what a router was learned with


def check_guard(given: str) -> Guard:
    """The guard of that name."""
    if given not in GUARDS:
        raise InputError(f"guard is 'warn' or 'strict', not {quote(given)}")
    return cast(Guard, given)


def open_router(given: Router | str | os.PathLike[str] | None, *, writes: bool) -> Router:
    """The router that is meant; by default one that fits a memory which writes records, or one which does not."""
    if given is None:
        return default_router(writes=writes)
    return given if isinstance(given, Router) else Router.load(given)


def find_quiet(router: Router | str | os.PathLike[str] | None) -> tuple[str, ...]:
    """In what a router may differ from its memory without a warning; there is no certificate then all the same.

    Those that ship were learned with an older renderer; the default serves with any model and any retriever.
    """
    shipped = router is None or (isinstance(router, str) and router in SHIPPED)
    return (("renderer",) if shipped else ()) + ((*MODELS, "retriever") if router is None else ())


def choose_feature_embed(router: Router, own: Embed) -> Embed:
    """What the router's features are computed with: the embedder that it learned with, where that needs no network.

    Never the caller's own, unless it is that very one, or nobody knows how to open the one that it learned with.
    """
    learned = router.embedder
    if learned not in OFFLINE or (isinstance(own, OFFLINE[learned]) and own.name == learned):
        return own
    try:
        return OFFLINE[learned]()
    except MissingExtraError:
        return own


def check_path(path: str | os.PathLike[str]) -> str:
    """The path of a store's file, the URL of one on a server, or ":memory:"."""
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path or "\0" in path:
        raise InputError("a memory needs a path, or ':memory:'")
    if "://" in path and not is_postgres(path):
        raise InputError(f"{quote(path.split('://')[0])} is no kind of store: give a file path or postgresql://...")
    return path

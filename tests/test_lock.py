"""The pinned versions stand in the ranges of pyproject.toml, each with hashes, and no word on where it came from."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from command_line import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
FRAMEWORKS = sorted(path.stem for path in Path(ROOT, "requirements", "integrations").glob("*.lock"))
LOCKS = [*"core dev server model encoders transformers clients fastmcp resolver".split()]
LOCKS += [f"integrations/{name}" for name in FRAMEWORKS]
OWN = "retcon-memory"


@dataclass(frozen=True)
class Pin:
    """One entry of a lock file."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> Version:
        (one,) = self.requirement.specifier
        assert one.operator == "=="
        return Version(one.version)

    def counts(self, python: str) -> bool:
        """Whether it is installed on Linux with that Python."""
        return applies(self.requirement, python)


def applies(requirement: Requirement, python: str) -> bool:
    where = {
        "python_version": python[:4], "python_full_version": python, "sys_platform": "linux", "extra": "",
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(where)


def text_of(name: str) -> str:
    return Path(ROOT, "requirements", f"{name}.lock").read_text(encoding="utf-8")


@cache
def pins(name: str) -> tuple[Pin, ...]:
    """The entries of a lock file, of which every line must be understood."""
    out = []
    for line in text_of(name).replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split(" --hash=")
        out.append(Pin(Requirement(requirement.strip()), tuple(each.strip() for each in hashes)))
    return tuple(out)


@cache
def project() -> dict[str, dict[str, list[str]]]:
    """Every list of requirements in pyproject.toml by its name."""
    read = tomllib.loads(Path(ROOT, "pyproject.toml").read_text(encoding="utf-8"))
    core = {"dependencies": read["project"]["dependencies"], "build-system": read["build-system"]["requires"]}
    return {"core": core, "extras": read["project"]["optional-dependencies"], "groups": read["dependency-groups"]}


def wanted(name: str) -> list[Requirement]:
    """What the file must hold because pyproject.toml asks for it, own extras replaced by what they hold."""
    core, extras, groups = project()["core"], project()["extras"], project()["groups"]
    asked = {
        "core": [*core["dependencies"], *core["build-system"], *groups["build"]],
        "dev": [*core["dependencies"], *core["build-system"], *groups["build"], *extras["dev"]],
        "server": [*core["dependencies"], *extras["server"], *extras["mcp"], *extras["http"]],
        "model": groups["model"],
        "encoders": groups["encoders"],
        "transformers": groups["transformers"],
        "clients": [*core["dependencies"], *groups["build"], *extras["mcp"], *extras["server"], *groups["clients"]],
        "fastmcp": [*core["dependencies"], *groups["build"], *extras["mcp"], *groups["fastmcp"]],
        "resolver": groups["resolver"],
    }
    asked |= {
        f"integrations/{each}": [*core["dependencies"], *groups["build"], *extras[each], *groups[f"test-{each}"]]
        for each in FRAMEWORKS
    }
    out: list[Requirement] = []
    for requirement in map(Requirement, asked[name]):
        if requirement.name == OWN:
            out += [Requirement(each) for extra in requirement.extras for each in extras[extra]]
        else:
            out.append(requirement)
    return out


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_every_direct_dependency_is_pinned_once_within_its_range(name: str, python: str) -> None:
    for requirement in wanted(name):
        found = [pin for pin in pins(name) if pin.name == canonicalize_name(requirement.name) and pin.counts(python)]
        assert len(found) == 1, requirement
        assert requirement.specifier.contains(found[0].version, prereleases=True), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_is_exact_and_has_hashes(name: str) -> None:
    assert pins(name)
    for pin in pins(name):
        assert pin.version
        assert pin.hashes, pin.name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes), pin.name
        assert pin.requirement.url is None


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_an_address_an_index_or_a_folder(name: str) -> None:
    assert not re.search(r"://|index-url|find-links|trusted-host|@|/", text_of(name))


def test_every_framework_of_the_makefile_has_an_extra_a_lock_tests_and_their_tools() -> None:
    (named,) = re.findall(r"^FRAMEWORKS := (.*)$", Path(ROOT, "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named.split()) == FRAMEWORKS
    assert {f"test-{name}" for name in FRAMEWORKS} == {name for name in project()["groups"] if name.startswith("test-")}
    for name in FRAMEWORKS:
        assert project()["extras"][name]
        assert list(Path(ROOT, "tests", "integrations").glob(f"test_{name.replace('-', '_')}*.py")), name


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["core", "server", "transformers"])
def test_files_that_are_installed_together_agree(name: str, python: str) -> None:
    every = {pin.name: pin.version for pin in pins("dev") if pin.counts(python)}
    for pin in pins(name):
        if pin.counts(python):
            assert every.get(pin.name, pin.version) == pin.version

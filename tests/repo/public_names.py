"""Print the public names: ``python tests/repo/public_names.py > tests/repo/public_names.txt``."""

import importlib
import sys
from types import ModuleType

from sources import PACKAGE, PAPERS


def public_modules() -> list[ModuleType]:
    """Return both packages and every folder of them that lists public names."""
    names = [
        ".".join(path.parent.relative_to(package.parent).parts)
        for package in (PACKAGE, PAPERS)
        for path in sorted(package.rglob("__init__.py"))
    ]
    modules = [importlib.import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "__all__")]


def public_names() -> list[str]:
    """Return every public name with the module that lists it, sorted."""
    return sorted(f"{m.__name__}.{name}" for m in public_modules() for name in m.__all__)


if __name__ == "__main__":
    sys.stdout.write("\n".join([*public_names(), ""]))

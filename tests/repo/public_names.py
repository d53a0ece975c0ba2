"""Print the public names: ``python tests/repo/public_names.py > tests/repo/public_names.txt``."""

import importlib
import sys
from types import ModuleType

from sources import PACKAGE


def public_modules() -> list[ModuleType]:
    """Return the package and every folder of it that lists public names."""
    folders = [p.parent for p in sorted(PACKAGE.rglob("__init__.py"))]
    names = [".".join(("tauflow", *p.relative_to(PACKAGE).parts)) for p in folders]
    modules = [importlib.import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "__all__")]


def public_names() -> list[str]:
    """Return every public name with the module that lists it, sorted."""
    return sorted(f"{m.__name__}.{name}" for m in public_modules() for name in m.__all__)


if __name__ == "__main__":
    sys.stdout.write("\n".join([*public_names(), ""]))

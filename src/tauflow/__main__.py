"""``python -m tauflow`` is the ``tauflow`` command."""

from tauflow.cli.main import main

main()

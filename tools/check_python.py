"""Say in one line what is missing when this Python cannot make the environment.

Read by whatever `python3` there is, so it keeps to what every version understands.
"""

import sys

version = "%d.%d.%d" % sys.version_info[:3]
if sys.version_info < (3, 10):
    sys.exit(
        "The course needs Python 3.10 or newer, and this is Python %s (%s).\n"
        "Install a newer one and name it: make book PYTHON=python3.12"
        % (version, sys.executable)
    )
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError as error:
    sys.exit(
        "Python %s (%s) cannot make an environment: no module %r.\n"
        "On Debian or Ubuntu: sudo apt-get install python%d.%d-venv"
        % ((version, sys.executable, error.name) + sys.version_info[:2])
    )

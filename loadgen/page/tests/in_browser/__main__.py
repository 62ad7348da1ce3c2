"""All tests in the browser: scripts/page [-k NAME]"""

import sys
import unittest
from pathlib import Path

if __name__ == "__main__":
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    unittest.main(module=None, argv=["in_browser", "discover", "-s", folder, *sys.argv[1:]], verbosity=2)

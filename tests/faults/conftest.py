import sys
from pathlib import Path

HERE = Path(__file__).parent

# The real crew of the chaos test, the engine of the engine's, the command line of the CLI's.
for folder in (HERE, HERE.parent / "chaos", HERE.parent / "engine", HERE.parent / "cli"):
    sys.path.insert(0, str(folder))

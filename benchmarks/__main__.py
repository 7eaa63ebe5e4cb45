import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported

from benchmarks.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

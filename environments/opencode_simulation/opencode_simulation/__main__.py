"""`python -m opencode_simulation serve|play|parity|snapshot`: worlds from the shell."""

from opencode_simulation.cli import main

if __name__ == "__main__":
    main()

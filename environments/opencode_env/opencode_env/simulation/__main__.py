"""`python -m opencode_env.simulation serve|play|parity|snapshot`: worlds from the shell."""

from opencode_env.simulation.cli import main

if __name__ == "__main__":
    main()

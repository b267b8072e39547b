# Two commands are all a newcomer needs: `make demo` and `make test`. Each sets up what is missing by itself.
.PHONY: demo test test-failed test-quick test-whole test-next test-engines learn test-learn check docs bench image openenv setup setup-docs setup-tests setup-learn lint help
SHELL := /bin/bash
UV = PATH="$(CURDIR)/.cache/uv/bin:$$PATH" uv
RUN = $(UV) run --no-sync
BASE = python:3.11-slim
LIBC = glibc

help:
	@echo "make demo   evaluate the sample tasks: real OpenCode, local sandboxes, scripted model (no account needed)"
	@echo "make demo MODEL=name URL=url  the same with your own model (ARGS=\"-- further options of vf-eval\")"
	@echo "make test   run the whole test suite"
	@echo "make test-failed  those that failed there once more, one by one"
	@echo "make test-quick  what starts no sandbox, no agent and no Python: after each edit"
	@echo "make test-whole  the same with sweeps, soaks and thousands of generated conversations: hours"
	@echo "make test-next  type check and whole rollouts against the newest verifiers, pre-releases included"
	@echo "make test-engines  ask real engines: vLLM for CPUs with a small model, each ENGINE=version (installs 4 GB, once)"
	@echo "make learn  train a small policy from nothing on rollouts of real OpenCode (installs torch; ARGS=--help)"
	@echo "make test-learn  the tests of that trainer"
	@echo "make check  lint, type check and generated pages: what CI runs before the tests"
	@echo "make docs   build the site of docs/ into .cache/site"
	@echo "make bench  run every benchmark and print its ratios"
	@echo "make image  build the image of a sandbox that holds OpenCode: BASE=image TAG=name LIBC=glibc|musl"
	@echo "make openenv  make deploy/openenv/* ready for \`openenv build\`"

demo: setup
	@$(RUN) python -m opencode_env.demo $(if $(filter command,$(origin MODEL)),--model "$(MODEL)") $(if $(filter command,$(origin URL)),--url "$(URL)") $(ARGS)

test: setup-tests
	@$(RUN) pytest

test-failed: setup-tests
	@$(RUN) pytest -n 0 --last-failed --last-failed-no-failures none

test-quick: setup-tests
	@$(RUN) pytest --quick

test-whole: setup-tests
	@WHOLE=1 $(RUN) pytest

test-next: setup-tests
	@$(RUN) python scripts/test_next.py

test-engines: setup
	@$(RUN) python -m scripts.engines ask $(ENGINE)

learn: setup-learn
	@$(RUN) python -m examples.learn $(ARGS)

test-learn: setup-learn
	@$(RUN) pytest -n 0 tests/learn

check: setup
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) python scripts/make_reference.py --check
	@$(RUN) mypy

docs: setup-docs
	@$(RUN) python scripts/make_reference.py --check
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build
	@echo "docs: .cache/site/index.html"

bench: setup-tests
	@for file in benchmarks/*.py; do case $$file in */_*) ;; *) $(RUN) python $$file || exit 1 ;; esac; done

image: setup
	@$(RUN) python scripts/make_image.py --base $(BASE) --libc $(LIBC) $(if $(TAG),--tag $(TAG))

openenv: setup
	@scripts/openenv_directories.sh

setup:
	@scripts/setup.sh

setup-docs:
	@scripts/setup.sh --docs

setup-tests:
	@scripts/setup.sh --tests

setup-learn:
	@scripts/setup.sh --learn

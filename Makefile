# `make help` lists the commands. ARGS goes on to the command: make test ARGS="-k lease"
SHELL := /bin/bash
PY := .venv/bin/python
CODE := $(wildcard dispatch mongo api console commands runner demo app.py cli.py domain_queue.py housekeeping.py local.py logs.py settings.py serve.py gunicorn_conf.py http_worker.py zipcheck.py)
ARGS ?=
# How many processes share the tests, a file each at a time. Each starts a mongod of its own.
TEST_JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo serve runner test soak chaos bench hostile lint format lock clean

help: ## list the commands
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## make .venv from the lock file (the other commands call this)
	@scripts/setup

demo: setup ## the whole service at work on real programs, checked
	@$(PY) -m demo $(ARGS)

serve: setup ## the API in the foreground; settings come from the environment
	@exec $(PY) serve.py $(ARGS)

runner: setup ## one reference runner; needs BACKEND_URL and RUNNER_REGISTRATION_TOKEN
	@exec $(PY) -m runner $(ARGS)

test: setup ## all tests, in TEST_JOBS processes
	@$(PY) -m pytest -n $(TEST_JOBS) --dist loadfile $(ARGS)

soak: setup ## the long runs: an hour of load (SOAK_S), the model for hours' worth of steps, 5,000 jobs at once
	@SOAK_S=$${SOAK_S:-3600} $(PY) -m pytest -s tests/cluster/test_soak.py $(ARGS)
	@HYPOTHESIS_PROFILE=soak JUDGE_CONCURRENCY_JOBS=5000 LANDING_S=60 $(PY) -m pytest \
		-o timeout=7200 tests/stateful tests/concurrency $(ARGS)

chaos: setup ## ten minutes of load on three mongod while things break; ARGS="--seconds 600 --seed 7"
	@$(PY) -m tests.cluster.chaos $(ARGS)

bench: setup ## measure everything beside floors and peers; ARGS="--quick", "--only cycle"
	@scripts/bench-deps
	@$(PY) -m benchmarks $(ARGS)

hostile: setup ## the hostile programs on a kernel with control groups of version 2 (slow)
	@scripts/on-cgroup-v2 $(PY) -m pytest -p no:cacheprovider -o timeout=1800 \
		tests/runner/test_runner_hostile.py tests/runner/test_runner_machine.py $(ARGS)

lint: setup ## lock files, ruff, mypy --strict, import contracts
	@$(PY) scripts/check-locks
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(CODE)
	@.venv/bin/lint-imports

format: setup ## rewrite the code in ruff's format, with its safe fixes
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

lock: setup ## compile the lock files anew from pyproject.toml
	@scripts/lock

clean: ## remove .venv and caches; data in .data stays
	@rm -rf .venv .bench-venv .setup.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

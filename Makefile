# `make demo` and `make test` need only Python 3.11 and make: they set up .venv themselves and reuse it while it is fresh.
SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
RUN := $(BIN)/python -m
CHECKED := vllm_hitratio_plugin $(wildcard benchmarks examples scripts tests tools)
FAST := not slow and not server and not engines

.PHONY: help env demo check test lint bench accuracy clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | sort | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

env: ## the environment alone: .venv with vLLM's CPU build, this package and its tools
	@scripts/setup_env.sh

demo: env ## a real vLLM server, a multi-turn load, predicted beside observed, and the recommendation put to the test
	@$(RUN) examples.demo $(DEMO_ARGS)

check: lint docs ## what to run before a commit, in under 3 minutes: lint, the pages, the fast tests
	$(RUN) pytest --doctest-modules vllm_hitratio_plugin
	$(RUN) pytest -n 2 -m "$(FAST)" $(PYTEST_ARGS)

test: lint docs ## lint, the pages, and every test but the engines' matrix
	$(RUN) pytest --doctest-modules vllm_hitratio_plugin
	$(RUN) pytest $(PYTEST_ARGS)

.PHONY: coverage mutants
coverage: env ## lines and branches of the package that the fast tests reach: build/coverage/
	$(RUN) pytest -n 2 -m "$(FAST)" --cov --cov-report=term --cov-report=html:build/coverage $(PYTEST_ARGS)

mutants: env ## small changes of model/ and index/, and whether the tests notice: build/mutants.json (MUTANTS_ARGS="--count 300")
	$(RUN) tools.mutants $(MUTANTS_ARGS)

lint: env ## ruff, mypy --strict and the layers of the package
	$(RUN) ruff check $(CHECKED)
	$(RUN) ruff format --check $(CHECKED)
	$(RUN) mypy
	$(RUN) mypy --python-version 3.11 -p tools
	$(BIN)/lint-imports

bench: env ## the plugin's cost against vLLM's own lookup, allocate and free: build/bench/cost.json
	@$(RUN) benchmarks $(BENCH_ARGS)

accuracy: env ## docs/accuracy.md and its figures, from the traces beside the repository (ACCURACY_ARGS="--traces DIR")
	@$(RUN) benchmarks.accuracy $(ACCURACY_ARGS)

clean: ## remove what the targets above made
	rm -rf .venv build mutants dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: demo-observability
demo-observability: env ## Prometheus and Alertmanager beside a real vLLM, and a fault that they find (OBSERVABILITY_ARGS)
	@$(RUN) examples.observability $(OBSERVABILITY_ARGS)

# Results of the engines' tests become docs/compatibility.md; wheels of other versions are kept in build/vllm-wheels.
.PHONY: test-engines soak
test-engines: env ## every vLLM from 0.18 to 0.33, vLLM-Ascend, topologies and limits; writes docs/compatibility.md
	@rm -rf build/compatibility
	HITRATIO_ENGINES=1 $(RUN) pytest tests/versions tests/ascend tests/topologies tests/server tests/soak $(PYTEST_ARGS)
	@$(RUN) tests.support.compatibility

soak: env ## half an hour of two real servers, with and without the plugin: build/soak/report.json (SOAK_ARGS="--minutes 30")
	@$(RUN) tests.support.soak $(SOAK_ARGS)

.PHONY: docs docs-reference
docs: env ## the documentation as a site: build/site (mkdocs, strict: dead links and anchors are errors)
	@$(RUN) mkdocs build --strict --quiet

docs-reference: env ## docs/metrics.md from the catalogue of metrics
	@$(BIN)/python scripts/metrics_reference.py

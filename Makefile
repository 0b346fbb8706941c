# `make check` runs everything that a change must pass. `make` alone lists the targets.
PYTHON ?= python
BESIDE := -n $(shell nproc) --dist loadgroup
ALONE  := --last-failed --last-failed-no-failures none -rpf

TIERS  := deploy browser faults e2e terminal slow torch postgres
IN_TIER := $(subst $() , or ,$(TIERS))

.PHONY: help check format lint types proto proto-lint test $(TIERS:%=test-%) test-tiers test-on-postgres e2e-k8s bench mutate mutate-fence silence docs
help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18
	@printf 'test-TIER\tone tier (tests/tiers.py): $(TIERS)\n' | expand -t 18

check: format lint types proto-lint test ## what every change must pass: format, lint, types, contracts, unit tests

format: ## check that the formatter has nothing to change
	ruff format --check .

lint: ## ruff and the import contracts
	ruff check .
	lint-imports

types: ## mypy --strict
	mypy

proto: ## generate the stubs beside the .proto files
	$(PYTHON) proto/build_stubs.py

proto-lint: ## buf lint, and buf breaking against the last released contract
	cd proto && buf lint && buf breaking --against baseline.binpb

# Tests run in parallel. Tests that fail are run once more alone, and those that pass then are listed.
define pytest
	$(PYTHON) -m pytest $(BESIDE) $(1) || $(PYTHON) -m pytest $(ALONE) $(1)
endef

test: ## unit and contract tests
	$(call pytest,-m "not ($(IN_TIER))" tests)

$(TIERS:%=test-%): test-%:
	$(call pytest,-m $* tests)

test-tiers: ## all tiers, and the tests of stores also on PostgreSQL
	$(call pytest,-m "$(IN_TIER)" tests)
	@[ -z "$$HAI_TEST_POSTGRES" ] || $(MAKE) test-on-postgres

test-on-postgres: export HAI_TEST_STORE = postgres
test-on-postgres: ## services and controllers on PostgreSQL (HAI_TEST_POSTGRES)
	$(call pytest,-m "not ($(IN_TIER))" tests/backend/api tests/backend/controllers tests/contract/test_client_contract.py)

e2e-k8s: ## the main job on a real cluster: KUBECONFIG and HAI_E2E_IMAGE (docs/operate.md says what else)
	$(PYTHON) -m pytest -m k8s tests/e2e tests/contract

bench: ## run the benchmarks, and write bench.json
	$(PYTHON) -m tests.bench

mutate: ## do the scheduler's tests notice small errors? 300 errors, ten minutes
	$(PYTHON) -m tests.mutation --sample 300

mutate-fence: ## do tests notice a removed statement of the fencing code? half an hour
	$(PYTHON) -m tests.mutation.fence

silence: ## 1 000 random schedules of silent links and processes with real agents, half an hour
	$(PYTHON) -m tests.silence 0 1000

docs: ## draw the pictures of the terminal app, and build the manual as a site
	$(PYTHON) -m hai_tui.screenshots docs/tui
	mkdocs build --strict

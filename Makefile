# make check: everything a change must pass. `make` alone shows the targets.
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

format: ## the formatter has nothing to change
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

# In parallel. What failed beside others is tried once more alone, and named.
define pytest
	$(PYTHON) -m pytest $(BESIDE) $(1) || $(PYTHON) -m pytest $(ALONE) $(1)
endef

test: ## unit and contract tests
	$(call pytest,-m "not ($(IN_TIER))" tests)

$(TIERS:%=test-%): test-%:
	$(call pytest,-m $* tests)

test-tiers: ## all tiers, and what runs on a store once more on PostgreSQL
	$(call pytest,-m "$(IN_TIER)" tests)
	@[ -z "$$HAI_TEST_POSTGRES" ] || $(MAKE) test-on-postgres

test-on-postgres: export HAI_TEST_STORE = postgres
test-on-postgres: ## services and controllers on PostgreSQL (HAI_TEST_POSTGRES)
	$(call pytest,-m "not ($(IN_TIER))" tests/backend/api tests/backend/controllers tests/contract/test_client_contract.py)

e2e-k8s: ## the main job on a real cluster: KUBECONFIG and HAI_E2E_IMAGE (docs/operate.md says what else)
	$(PYTHON) -m pytest -m k8s tests/e2e tests/contract

bench: ## the figures of the quality bars, into bench.json
	$(PYTHON) -m tests.bench

mutate: ## would the scheduler's tests notice? 300 small errors, ten minutes
	$(PYTHON) -m tests.mutation --sample 300

mutate-fence: ## would any test notice a lost statement of the fence? half an hour
	$(PYTHON) -m tests.mutation.fence

silence: ## what falls silent ends nothing twice: 1 000 schedules with real agents, half an hour
	$(PYTHON) -m tests.silence 0 1000

docs: ## the pictures of the terminal app drawn anew, and the manual as a site
	$(PYTHON) -m hai_tui.screenshots docs/tui
	mkdocs build --strict

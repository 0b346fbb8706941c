# make check: everything a change must pass. `make` alone shows the targets.
PYTHON ?= python
BESIDE := -n $(shell nproc) --dist loadgroup
ALONE  := --last-failed --last-failed-no-failures none -rpf

.PHONY: help check format lint types proto proto-lint test test-postgres e2e-k8s bench mutate mutate-fence silence docs
help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

check: format lint types proto-lint test ## format, lint, types, contracts, tests

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

test: ## all tests, in parallel; what failed beside others is tried once more alone, and named
	$(PYTHON) -m pytest $(BESIDE) tests || $(PYTHON) -m pytest $(ALONE) tests

ON_STORE := tests/backend/api tests/backend/controllers tests/contract/test_client_contract.py
test-postgres: export HAI_TEST_STORE = postgres
test-postgres: ## what runs on a store, once more on PostgreSQL (HAI_TEST_POSTGRES)
	$(PYTHON) -m pytest $(BESIDE) $(ON_STORE) || $(PYTHON) -m pytest $(ALONE) $(ON_STORE)

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

# Foreshock: `make run` shows it, `make test` checks it. Needs Python 3.11 or newer and nothing else.
.DEFAULT_GOAL := help
PYTHON ?= python3
UV := 0.13.8
BIN := .venv/bin
STAMP := .venv/set-up

.PHONY: help setup run test security storm sbom bench faults record

help: ## what there is to make
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## .venv with everything in it, as locked; a second time does nothing

$(STAMP): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with make PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
		{ rm -rf .venv; echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	$(BIN)/uv sync --quiet --frozen --all-groups --inexact
	@touch $@

run: setup ## serve, with a recorded incident replayed into the cluster "demo"
	$(BIN)/foreshock serve --demo

test: setup ## everything that checks the project
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --quiet
	$(BIN)/python tools/file_sizes.py
	$(BIN)/pytest -n 2 --dist loadfile $(TESTS)

security: setup ## what is promised of security (docs/security.md), tried, and its figures: some minutes
	$(BIN)/pytest -n 2 --dist loadfile -m "not long" -p tests.security.figures $$($(BIN)/python -m tests.security)

storm: setup ## a thousand messages for each way in which Slack can fail, which does it to a fifth of all calls
	$(BIN)/pytest -n 2 -m long tests/notify/test_storm.py tests/notify/test_program.py

sbom: setup ## what Foreshock is built of, part by part: sbom.cdx.json (CycloneDX)
	$(BIN)/python tools/sbom.py >sbom.cdx.json

bench: setup ## ours against the limit, and what a row weighs
	$(BIN)/python -m bench

faults: setup ## break the program, its network, disks and servers while a real cluster is written to: an hour and more
	KUBEBUILDER_ASSETS=$$(tests/cluster/build.sh) && export KUBEBUILDER_ASSETS && $(BIN)/python -m tests.faults $(FAULTS)

SCENARIO ?= list

record: setup ## a labelled incident on a real control plane: SCENARIO=name [OUT=folder] [ARGS=...], docs/lab.md
	KUBEBUILDER_ASSETS=$$(tests/cluster/build.sh) && export KUBEBUILDER_ASSETS && \
		$(BIN)/python -m tests.lab.record $(SCENARIO) $(if $(OUT),--out $(OUT)) $(ARGS)

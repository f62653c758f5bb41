# Two commands carry everything: `make demo` and `make test`. Both make the environment first, and
# only once: it is made again when what it is made from changes.

PYTHON ?= python3
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
PIP := python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
CXX_FILES := $(wildcard core/*/*.cpp core/*/*.hpp)
NATIVE := CMakeLists.txt core/CMakeLists.txt $(CXX_FILES)
# Rooms with a native module, each with the stub of its own.
NATIVE_ROOMS := tokenizer generation
# The generated tables are as their script writes them.
FORMATTED_CXX := $(filter-out core/bpe/unicode_tables.hpp,$(CXX_FILES))

.PHONY: demo test test-browser env lint format stubs unicode sanitize bench clean

demo: env
	$(BIN)/tilth demo

# A process a core, but for what measures time; a file's tests stay together, as they share what they
# make. With ARGS, one process and whatever they say.
test: env
ifeq ($(ARGS),)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow and not browser and not alone"
	$(BIN)/python -m pytest -m "alone and not slow"
else
	$(BIN)/python -m pytest $(ARGS)
endif

# --- the environment -----------------------------------------------------------------------------

env: .venv/native.stamp

.venv/packages.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "tilth needs Python 3.11 or newer: say make PYTHON=python3.11"; exit 1; }
	@echo "Making the environment .venv, once; torch alone is some 200 MB, so this takes a minute or two."
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) scikit-build-core nanobind cmake ninja
	$(BIN)/$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@ .venv/native.stamp

# Editable: Python files are used where they stand; only a changed core is built again.
.venv/native.stamp: .venv/packages.stamp $(NATIVE)
	@echo "Building the native core."
	$(BIN)/$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

# --- checks --------------------------------------------------------------------------------------

# In a real browser: needs Debian's chromium, or another named by TILTH_CHROMIUM.
test-browser: env
	$(BIN)/$(PIP) playwright
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED_CXX)
	for room in $(NATIVE_ROOMS); do \
	    $(BIN)/python -m nanobind.stubgen --quiet -m tilth.$$room._core -o build/_core.pyi && \
	    diff src/tilth/$$room/_core.pyi build/_core.pyi || { echo "The stub is old: run make stubs."; exit 1; }; \
	done

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(FORMATTED_CXX)

stubs: env
	for room in $(NATIVE_ROOMS); do \
	    $(BIN)/python -m nanobind.stubgen --quiet -m tilth.$$room._core -o src/tilth/$$room/_core.pyi || exit 1; \
	done

unicode: env
	$(BIN)/python core/bpe/make_unicode_tables.py

# The core's own tests, once for memory and undefined behaviour, once for data races.
sanitize: env
	for sanitizers in address,undefined thread; do \
	    $(BIN)/cmake -S core -B build/$$sanitizers -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTILTH_SANITIZE=$$sanitizers && \
	    $(BIN)/cmake --build build/$$sanitizers && \
	    $(BIN)/ctest --test-dir build/$$sanitizers --output-on-failure || exit 1; \
	done

# --- benchmarks, against peers in an environment of their own --------------------------------------

.venv-bench/packages.stamp: pyproject.toml constraints.txt
	@echo "Making the environment .venv-bench for the peers, once."
	$(PYTHON) -m venv .venv-bench
	$(BENCH_BIN)/$(PIP) scikit-build-core nanobind cmake ninja
	$(BENCH_BIN)/$(PIP) --no-build-isolation '.[bench]'
	@touch $@

bench: .venv-bench/packages.stamp
	$(BENCH_BIN)/$(PIP) --no-build-isolation --no-deps --force-reinstall .
ifneq ($(ONLY),accounting)
	$(BENCH_BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)
endif
ifneq ($(filter $(or $(ONLY),accounting),accounting),)
	$(BENCH_BIN)/python -m bench.accounting $(ARGS)
endif

clean:
	rm -rf build .venv .venv-bench bench/results bench/cache .hypothesis .mypy_cache .pytest_cache .ruff_cache

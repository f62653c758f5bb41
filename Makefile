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

.PHONY: demo test test-base test-browser env lint format stubs unicode sanitize bench clean

demo: $(or $(wildcard .venv/dev.stamp),.venv/demo.stamp)
	$(BIN)/tilth demo

# One process for each core, except for tests that measure time; the tests of a file stay together,
# as they share fixtures. With ARGS: one process, and what they say.
test: env
ifeq ($(ARGS),)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m "not slow and not browser and not alone"
	$(BIN)/python -m pytest -m "alone and not slow" $(shell grep -rl 'mark\.alone' tests --include='*.py')
else
	$(BIN)/python -m pytest $(ARGS)
endif

# --- the environment -----------------------------------------------------------------------------

env: .venv/dev.stamp build/core/tests.stamp

.venv/tools.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "tilth needs Python 3.11 or newer: run make PYTHON=python3.11"; exit 1; }
	@echo "Making the environment .venv, once; torch alone is some 200 MB, so this takes a minute or two."
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

# Editable: Python files are used in place; these are made again when the native core changes.
.venv/demo.stamp: .venv/tools.stamp $(NATIVE)
	$(BIN)/$(PIP) --no-build-isolation --editable '.[train,report]'
	@touch $@

.venv/dev.stamp: .venv/tools.stamp $(NATIVE)
	$(BIN)/$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# The core's own test programs, which `make test` runs.
build/core/tests.stamp: .venv/tools.stamp $(NATIVE)
	$(BIN)/cmake -S core -B build/core -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja >/dev/null
	$(BIN)/cmake --build build/core >/dev/null
	@touch $@

# --- checks --------------------------------------------------------------------------------------

# The base install, without torch, on every supported Python that is present.
test-base:
	for version in 3.11 3.12 3.13; do \
	    python$$version -c "" 2> /dev/null || { echo "python$$version is not here"; continue; }; \
	    python$$version -m venv --clear build/base-$$version && \
	    build/base-$$version/bin/$(PIP) . pytest hypothesis && \
	    build/base-$$version/bin/python -m pytest -p no:cacheprovider tests/test_without_torch.py || exit 1; \
	done

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

# The core's own tests, once for memory and undefined behaviour, once for data races. Then the tests
# of the bindings against modules that are built for the first.
PRELOAD = $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libubsan.so):$(shell $(CXX) -print-file-name=libstdc++.so)
sanitize: env
	for sanitizers in address,undefined thread; do \
	    $(BIN)/cmake -S core -B build/$$sanitizers -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTILTH_SANITIZE=$$sanitizers && \
	    $(BIN)/cmake --build build/$$sanitizers && \
	    $(BIN)/ctest --test-dir build/$$sanitizers --output-on-failure || exit 1; \
	done
	$(BIN)/cmake -S . -B build/sanitized-modules -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTILTH_SANITIZE=address,undefined -DSKBUILD_PROJECT_NAME=tilth \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build build/sanitized-modules
	LD_PRELOAD=$(PRELOAD) ASAN_OPTIONS=detect_leaks=0 TILTH_MODULES=build/sanitized-modules \
	    $(BIN)/python -m pytest -p tests.sanitized_modules -m "not alone and not slow" \
	    tests/tokenizer/test_core.py tests/generation/test_decoder.py

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

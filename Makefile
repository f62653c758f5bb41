# The two main targets are `demo` and `test`. Both create the environment .venv first, and update it
# when pyproject.toml, constraints.txt or the C++ core change.

PYTHON ?= python3
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
PIP := python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
CXX_FILES := $(wildcard core/*/*.cpp core/*/*.hpp)
NATIVE := CMakeLists.txt core/CMakeLists.txt $(CXX_FILES)
# Packages with a native module `_core` and its stub `_core.pyi`.
NATIVE_PACKAGES := tokenizer generation
# Generated tables keep the format of their script.
FORMATTED_CXX := $(filter-out core/bpe/unicode_tables.hpp core/bpe/normalization_tables.hpp,$(CXX_FILES))

.PHONY: demo test test-base test-browser test-compilers env lint format stubs unicode words pictures sanitize bench clean

demo: $(or $(wildcard .venv/dev.stamp),.venv/demo.stamp)
	$(BIN)/tilth demo

# One process per core, except for tests that measure time. Tests of one file share fixtures and stay
# in one process. ARGS go to pytest, which then runs in one process.
test: env
ifeq ($(ARGS),)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m "not slow and not browser and not alone"
	$(BIN)/python -m pytest -m "alone and not slow" $(shell grep -rl 'mark\.alone' tests --include='*.py')
else
	$(BIN)/python -m pytest $(ARGS)
endif

# --- the environment -----------------------------------------------------------------------------

env: .venv/dev.stamp build/core/tests.stamp

# setuptools builds the packages of lm_eval that have no wheels.
.venv/tools.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "tilth needs Python 3.11 or newer: run make PYTHON=python3.11"; exit 1; }
	@echo "Creating the environment .venv, once. torch alone is about 200 MB: this takes a minute or two."
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) scikit-build-core nanobind cmake ninja setuptools
	@touch $@

# Editable installs: Python files are used in place; a change to the C++ core triggers a rebuild.
.venv/demo.stamp: .venv/tools.stamp $(NATIVE)
	$(BIN)/$(PIP) --no-build-isolation --editable '.[train,report]'
	@touch $@

.venv/dev.stamp: .venv/tools.stamp $(NATIVE)
	$(BIN)/$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# The C++ test programs, which `make test` runs.
CONFIGURE_CORE = $(BIN)/cmake -S core -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
build/core/tests.stamp: .venv/tools.stamp $(NATIVE)
	$(CONFIGURE_CORE) -B build/core >/dev/null
	$(BIN)/cmake --build build/core >/dev/null
	@touch $@

# --- checks --------------------------------------------------------------------------------------

# The base install, without torch, on each supported Python version that is installed.
test-base:
	for version in 3.11 3.12 3.13; do \
	    python$$version -c "" 2> /dev/null || { echo "python$$version is not installed"; continue; }; \
	    python$$version -m venv --clear build/base-$$version && \
	    build/base-$$version/bin/$(PIP) . pytest hypothesis && \
	    build/base-$$version/bin/python -m pytest -p no:cacheprovider tests/test_without_torch.py || exit 1; \
	done

# Needs Debian's chromium, or the browser named by TILTH_CHROMIUM. ARGS='-m "browser and slow"' measures
# the studio with 500 runs.
test-browser: env
	$(BIN)/$(PIP) playwright axe-playwright-python
	$(BIN)/python -m pytest -m "browser and not slow" tests/browser $(ARGS)

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED_CXX)
	for package in $(NATIVE_PACKAGES); do \
	    $(BIN)/python -m nanobind.stubgen --quiet -m tilth.$$package._core -o build/_core.pyi && \
	    diff src/tilth/$$package/_core.pyi build/_core.pyi || { echo "The stub is outdated: run make stubs."; exit 1; }; \
	done

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(FORMATTED_CXX)

stubs: env
	for package in $(NATIVE_PACKAGES); do \
	    $(BIN)/python -m nanobind.stubgen --quiet -m tilth.$$package._core -o src/tilth/$$package/_core.pyi || exit 1; \
	done

unicode: env
	$(BIN)/python core/bpe/make_unicode_tables.py

# Lists sentences of more than 30 words and banned phrases; not a gate. ARGS: files or folders.
words:
	$(PYTHON) scripts/list_words.py $(ARGS)

# The pictures of the README and the docs. Trains a small model for a minute; needs Debian's chromium.
pictures: env
	$(BIN)/python scripts/draw_packages.py
	$(BIN)/python scripts/make_pictures.py

# The C++ tests with Clang and libc++, as on macOS, then for arm64 in an emulator. Needs Debian's clang-15,
# libc++-15-dev, libc++abi-15-dev, g++-aarch64-linux-gnu and qemu-user.
test-compilers: env
	$(CONFIGURE_CORE) -B build/clang -DCMAKE_CXX_COMPILER=clang++-15 -DCMAKE_CXX_FLAGS=-stdlib=libc++
	$(CONFIGURE_CORE) -B build/arm64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_SYSTEM_NAME=Linux \
	    -DCMAKE_SYSTEM_PROCESSOR=aarch64 '-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu'
	for folder in clang arm64; do \
	    $(BIN)/cmake --build build/$$folder && \
	    $(BIN)/ctest --test-dir build/$$folder --output-on-failure || exit 1; \
	done

# The C++ tests under ASan and UBSan, then under TSan. Then the tests of the bindings, with extension
# modules built for ASan and UBSan.
PRELOAD = $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libubsan.so):$(shell $(CXX) -print-file-name=libstdc++.so)
sanitize: env
	for sanitizers in address,undefined thread; do \
	    $(CONFIGURE_CORE) -B build/$$sanitizers \
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
	    tests/tokenizer/test_core.py tests/generation/test_native_decoder.py

# --- benchmarks: peers are installed in a separate environment -------------------------------------

.venv-bench/packages.stamp: pyproject.toml constraints.txt
	@echo "Creating the environment .venv-bench for the peers, once."
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

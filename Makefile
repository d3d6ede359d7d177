# make demo and make test need nothing but python3 (3.11 or newer, with venv), git and make.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Bytecode, as pip makes it for wheels: some machines never write it (PYTHONDONTWRITEBYTECODE), and a cold start
# would compile every module anew, which takes as long as the analysis.
COMPILE := @$(BIN)/python -m compileall -q analyzer

# What ends up in a wheel: the distribution is built again only when one of these changes.
DIST_SOURCES := pyproject.toml README.md LICENSE Makefile tests/installed_wheel.py \
	$(shell find analyzer specs predictors examples -type f -not -name '*.pyc' 2>/dev/null)
DIST_STAMP := build/dist-check.stamp

.DEFAULT_GOAL := help
.PHONY: help demo test check check-rest format lint types dist-check predictors bench-accuracy bench-kernels \
	bench-operators bench-frontend bench-coverage bench-plausibility bench-same-generation bench-models bench-fusion bench-fusion-cuda \
	bench-launches-ort bench-fusion-inductor bench-fusion-trt bench-instructions bench-speed fuzz clean
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' Makefile | expand -t 30

demo: $(VENV)/.installed ## analyse examples/resnet50.onnx on an A100 and print the report
	@echo "neusight-onnx analyze examples/resnet50.onnx --gpu a100 --batch 8"
	@$(BIN)/neusight-onnx analyze examples/resnet50.onnx --gpu a100 --batch 8

test: $(VENV)/.installed-dev ## all tests
	$(BIN)/pytest

check: test check-rest ## format, lint, types, tests, and the wheel used from outside the checkout: what CI runs

check-rest: lint types dist-check ## make check without the tests

lint: $(VENV)/.installed-dev ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.installed-dev ## reformat everything
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.installed-dev ## mypy --strict
	$(BIN)/mypy

dist-check: $(DIST_STAMP) ## build wheel and sdist, install the wheel in a fresh environment, use it from elsewhere

$(DIST_STAMP): $(DIST_SOURCES) | $(VENV)/.installed-dev
	rm -rf build/dist build/wheel-venv build/elsewhere
	mkdir -p build/elsewhere
	$(BIN)/python -m build --no-isolation --outdir build/dist . > build/dist.log 2>&1 || { tail -n 40 build/dist.log; exit 1; }
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.whl
	cp examples/resnet50.onnx tests/installed_wheel.py build/elsewhere
	cd build/elsewhere && ../wheel-venv/bin/python -I installed_wheel.py resnet50.onnx
	touch $@

predictors: $(VENV)/.installed-dev ## fit all predictors anew: make predictors DATA=folder of measured data
	$(call required,DATA,folder of measured kernels)
	$(BIN)/python -m neusight_onnx.learning train "$(DATA)" --output predictors

bench-accuracy: $(VENV)/.installed-dev ## error of whole models: make bench-accuracy DATA=folder
	$(call required,DATA,folder that holds data/ and models/)
	$(BIN)/python benchmarks/accuracy.py "$(DATA)"

bench-kernels: $(VENV)/.installed-dev ## error of kernels on GPUs left out: make bench-kernels DATA=folder [ONLY="conv gemm_bf16"]
	$(call required,DATA,folder that holds data/)
	$(BIN)/python benchmarks/kernels.py "$(DATA)" $(foreach name,$(ONLY),--only "$(name)")

bench-operators: $(VENV)/.installed-dev ## our kernels beside what PyTorch ran in real models: make bench-operators DATA=folder
	$(call required,DATA,folder that holds data/ and models/)
	$(BIN)/python benchmarks/operators.py "$(DATA)"

bench-frontend: $(VENV)/.installed-dev ## shapes and operators of many models: make bench-frontend MODELS=folder
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/frontend.py "$(MODELS)"

bench-coverage: $(VENV)/.installed-dev ## share of nodes in kernels, free, unsupported: make bench-coverage MODELS=folder
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/coverage.py "$(MODELS)"

bench-plausibility: $(VENV)/.installed-dev ## what physics says must hold of predictions on GPUs that nobody measured
	$(BIN)/python benchmarks/plausibility.py

bench-same-generation: $(VENV)/.installed-dev ## 16-bit products on GPUs never measured, by figures that other GPUs show: DATA=folder
	$(call required,DATA,folder that holds data/)
	$(BIN)/python benchmarks/same_generation.py "$(DATA)"

bench-models: $(VENV)/.installed-dev ## measured models by runtime and GPU: make bench-models DATA=folder [AS_MEASURED=folder]
	$(call required,DATA,folder that holds data/ and models/)
	$(BIN)/python benchmarks/models.py "$(DATA)" $(if $(AS_MEASURED),--as-measured "$(AS_MEASURED)")

bench-fusion: $(VENV)/.installed-dev ## our graph beside ONNX Runtime's own: make bench-fusion MODELS=folder
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/fusion_ort.py "$(MODELS)"

# An early release wants a Python of its time: make bench-fusion-cuda MODELS=... RELEASE=1.14.1 ORT_PYTHON=python3.9
RELEASE ?= 1.31.1
ORT_PYTHON ?= $(PYTHON)
ORT_ENV := build/onnxruntime-gpu-$(RELEASE)
# The headers are those of the CUDA that the release asks for; the wheels until 1.18 want numpy 1.
build/onnxruntime-gpu-%/.installed:
	$(ORT_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check "onnxruntime-gpu==$*" "numpy<2"
	cuda=$$(grep -aoh 'libcudart\.so\.1[0-9]' $(@D)/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so \
		| head -n 1 | grep -o '..$$') && case "$$cuda" in \
		11 | 12) headers="nvidia-cuda-runtime-cu$$cuda nvidia-cuda-nvcc-cu$$cuda" ;; \
		*) headers="nvidia-cuda-runtime==$$cuda.* nvidia-cuda-crt==$$cuda.*" ;; esac && \
		$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $$headers
	@touch $@

bench-fusion-cuda: $(VENV)/.installed-dev $(ORT_ENV)/.installed ## the same with its CUDA provider's graph, no GPU needed [RELEASE=1.31.1]
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/cuda_standin.py $(ORT_ENV)/lib/python3*/site-packages -o $(ORT_ENV)/stand-ins
	$(BIN)/python benchmarks/fusion_ort.py "$(MODELS)" --cuda $(ORT_ENV)/lib/python3*/site-packages \
		--stand-ins $(ORT_ENV)/stand-ins --python $(ORT_ENV)/bin/python

bench-launches-ort: $(VENV)/.installed-dev $(ORT_ENV)/.installed ## our kernels beside what its CUDA provider launches, no GPU needed
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/cuda_standin.py $(ORT_ENV)/lib/python3*/site-packages -o $(ORT_ENV)/stand-ins
	$(BIN)/python benchmarks/launches_ort.py "$(MODELS)" --cuda $(ORT_ENV)/lib/python3*/site-packages \
		--stand-ins $(ORT_ENV)/stand-ins --python $(ORT_ENV)/bin/python

TORCH_ENV := build/torch
build/torch/.installed:
	$(PYTHON) -m venv $(TORCH_ENV)
	$(TORCH_ENV)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.9.1 torchvision timm==1.0.31 \
		transformers==5.24.0
	@touch $@

bench-fusion-inductor: $(VENV)/.installed-dev build/torch/.installed ## our kernels beside those of torch.compile, no GPU needed
	$(call required,MODELS,folder of ONNX models named as in timm)
	$(BIN)/python benchmarks/cuda_standin.py $(TORCH_ENV)/lib/python3*/site-packages -o build/torch-stand-ins --gpu rtx-4090
	$(BIN)/python benchmarks/fusion_inductor.py "$(MODELS)" --python $(TORCH_ENV)/bin/python --stand-ins build/torch-stand-ins

TRT_SITE := build/tensorrt-rtx
build/tensorrt-rtx/.installed:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $(TRT_SITE) --no-deps \
		tensorrt_rtx_cu13_bindings==1.7.1.116 tensorrt_rtx_cu13_libs==1.7.1.116
	@touch $@

bench-fusion-trt: $(VENV)/.installed-dev build/tensorrt-rtx/.installed ## our kernels beside layers of TensorRT engines, no GPU needed
	$(call required,MODELS,folder of ONNX models)
	$(BIN)/python benchmarks/fusion_trt.py "$(MODELS)" --trt $(TRT_SITE)

build/instructions/.installed:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target build/instructions --no-deps \
		onnxruntime-gpu==1.31.1 "nvidia-cuda-runtime==13.*" "nvidia-cuda-crt==13.*" \
		"nvidia-cuda-cuobjdump==13.*" "nvidia-cuda-nvdisasm==13.*"
	@touch $@

bench-instructions: $(VENV)/.installed-dev build/instructions/.installed ## instructions of ONNX Runtime's CUDA kernels, no GPU needed
	$(BIN)/python benchmarks/ort_instructions.py build/instructions

bench-speed: $(VENV)/.installed-dev ## cold and warm analysis times: make bench-speed [MODEL=file.onnx]
	$(BIN)/python benchmarks/speed.py $(if $(MODEL),"$(MODEL)")

fuzz: $(VENV)/.installed-dev ## 10,000 damaged models through the whole analysis, and the long run of the fuzz tests
	$(BIN)/python benchmarks/fuzz.py --cases 10000
	NEUSIGHT_FUZZ_CASES=10000 $(BIN)/pytest -k fuzz

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find analyzer tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# -- environments: stamps make a second call fast --

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed, but $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.created
	$(PIP_INSTALL) --editable .
	$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.created
	$(PIP_INSTALL) --editable '.[dev]'
	$(COMPILE)
	@touch $@ $(VENV)/.installed

# $(call required,NAME,what it is)
define required
	@test -n "$($(1))" || { echo "make $@ $(1)=...: give the $(2)" >&2; exit 2; }
	@test -d "$($(1))" || { echo "make $@: $(1)=$($(1)) is no folder; give the $(2)" >&2; exit 2; }
endef

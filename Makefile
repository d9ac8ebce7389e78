# SPDX-License-Identifier: Apache-2.0
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE      ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agentsession
HELM       := $(CACHE)/tools/helm-$(shell sed -n 's|.*helm.sh/helm/v4 \(v[0-9.]*\).*|\1|p' hack/tools/go.mod | head -1)/helm
LINT       := go tool -modfile=$(CURDIR)/hack/tools/lint/go.mod golangci-lint
KUBE       := go -C hack/kube run .
IMAGES     := go -C hack/images run .
DIST       := $(CACHE)/images
TAG        := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo dev)$(shell test -z "$$(git status --porcelain 2>/dev/null)" || git diff HEAD | sha256sum | cut -c1-8 | sed 's/^/-/')
# CONTEXT names a context of your kubeconfig; without it a cluster is started here. REGISTRY is where that cluster pulls images from.
CONTEXT    ?=
REGISTRY   ?=
REPORTS    ?= $(CACHE)/conformance
REPOSITORY := $(or $(REGISTRY),agentsession.dev)

.PHONY: help demo test unit race integration conformance e2e bench scale generate verify lint images cluster cluster-down cluster-status soak chaos wording

help: ## Show this text
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "  CONTEXT=name REGISTRY=host/path   for demo and images: use your cluster instead of one started here"

demo: cluster images $(HELM) ## See the main job on a real cluster: denied, patched, allowed, and back
	@$(ENV) go run ./hack/demo --context='$(CONTEXT)' --repository='$(REPOSITORY)' --tag='$(TAG)' $(DEMO_HINTS)

test: unit integration conformance e2e ## Run every test: unit, API, controllers, confinement, end to end

unit: ## Run the tests beside the code
	go vet ./...
	go test $$(go list ./... | grep -v /test/) ./test/bugclasses
	cd hack/kube && CGO_ENABLED=0 go test . ./internal/... ./cmd/nodeimage
	cd hack/images && go test ./...

race: ## Run the tests beside the code under the race detector, one package after the other
	for p in $$(go list ./api/... ./cmd/... ./controllers/... ./internal/...); do go test -race -timeout 20m $$p; done

integration: kube-binaries $(HELM) ## Test the API, the controllers and the chart against a real apiserver
	$(ENV) go test ./test/integration/... ./test/chart/...

conformance: cluster images $(HELM) ## Test the confinement in the kernel of this machine, in runc and in a session's pod (root); writes reports
	@test "$$(id -u)" = 0 || { echo "make conformance needs root: it builds containers to test in. Use sudo -E make conformance."; exit 1; }
	@$(KUBE) packages
	@mkdir -p $(REPORTS)
	CONFORMANCE_REPORTS='$(REPORTS)' go test -timeout 20m $(RUN) ./test/conformance/...
	$(ENV) CONFORMANCE_REPORTS='$(REPORTS)' $(E2E) -run '^$(IN_A_SESSION)$$' ./test/e2e

soak: kube-binaries ## Repeat what must never fail: 1,000 narrowings under load, 1,000 kills of the log's writer, 1,000 switches in a session, 1,000 waits for a switch (root)
	NARROWINGS=1000 go test -count=1 -timeout 30m -v -run TestAfterNarrowed ./test/conformance
	EVENTLOG_TEST_KILLS=1000 go test -count=1 -timeout 30m -run Kill9 ./internal/agent/eventlog
	SWITCHES=1000 go test -count=1 -timeout 30m -v -run TestSwitchesKeepTheCache ./internal/agent
	$(ENV) WAITS=1000 go test -count=1 -timeout 30m -v -run TestWaitingForAMode ./test/integration/controllers

.PHONY: mutate
mutate: ## Take single checks out of the agent, one at a time, and see that a test notices (RUN='-run gate' for some of them)
	go run ./hack/mutate $(RUN)

e2e: cluster images $(HELM) ## Test on a real cluster
	$(ENV) $(E2E) $(or $(RUN),-skip '^$(IN_A_SESSION)$$') ./test/e2e/...

chaos: cluster images $(HELM) ## Break the development cluster for 15 minutes under working sessions (root); CHAOS='-chaos.duration=3m -chaos.seed=1'
	$(ENV) E2E_REPOSITORY='$(REPOSITORY)' E2E_TAG='$(TAG)' go test -count=1 -timeout 60m -v ./test/chaos -args -chaos.state="$$(dirname "$$KUBECONFIG")" $(CHAOS)

bench: cluster images $(HELM) ## Measure, beside what a user would otherwise do; writes bench/results.json (BENCH='-only switch' for a part)
	@$(ENV) go run ./bench --repository='$(REPOSITORY)' --tag='$(TAG)' --out bench/results.json --context='$(CONTEXT)' $(AUDIT_LOG) $(BENCH)

scale: kube-binaries ## Run the operator with 5,000 sessions and print what they cost it; SCALE='-sessions 500 -idle 20s' for less
	@$(ENV) go run ./bench/scale $(SCALE)

# WORDING are flags of hack/wording made of what is given: KEY_FILE, MODEL, BASE_URL, PROVIDER, N, SEED, ARMS, OUT, APPROVAL.
WORDING := $(strip $(foreach v,KEY_FILE=key-file MODEL=model BASE_URL=base-url PROVIDER=provider N=n SEED=seed ARMS=arms OUT=out APPROVAL=approval,\
	$(if $($(firstword $(subst =, ,$v))),-$(lastword $(subst =, ,$v)) '$($(firstword $(subst =, ,$v)))')))

wording: ## Measure what the snapshot's words do (root); KEY_FILE=… MODEL=… BASE_URL=… N=… for a real model, else a test of itself
	@go run ./hack/wording $(WORDING)

generate: ## Write what is generated: deep copies, CRDs, roles, reference
	go generate ./...

verify: generate lint ## Check that generated files, modules and style are as they should be
	go mod tidy -diff
	cd hack/kube && go mod tidy -diff
	cd hack/images && go mod tidy -diff
	git diff --exit-code

lint: ## Run the linters
	$(LINT) run --allow-parallel-runners

images: ## Build the images into the cluster (or push them to REGISTRY)
ifeq ($(CONTEXT),)
	@$(IMAGES) build --out $(DIST) --tag $(TAG)
	@$(KUBE) load $(foreach i,manager agent replay-model tools,$(DIST)/$(i).tar)
else
	@test -n '$(REGISTRY)' || { echo "With CONTEXT say where your cluster pulls images from: REGISTRY=host/path"; exit 1; }
	@$(IMAGES) build --out $(DIST) --tag $(TAG)
	@$(IMAGES) push --dir $(DIST) --repo $(REGISTRY)
endif

cluster: kube-binaries ## Start the development cluster (nothing to do where CONTEXT is given)
ifeq ($(CONTEXT),)
	@$(KUBE) up
endif

cluster-down: ## Stop the development cluster
	@$(KUBE) down

cluster-status: ## Say what runs of the development cluster
	@$(KUBE) status

kube-binaries:
	@$(KUBE) build

$(HELM):
	@echo "Building helm (once)"
	@mkdir -p $(@D)
	@go build -modfile=hack/tools/go.mod -o $@ helm.sh/helm/v4/cmd/helm

# E2E runs tests on a cluster. IN_A_SESSION is the one of them that belongs to the conformance suite.
E2E = E2E_CONTEXT='$(CONTEXT)' E2E_REPOSITORY='$(REPOSITORY)' E2E_TAG='$(TAG)' go test -count=1 -timeout 30m -v
IN_A_SESSION = TestPromisesInASession

# ENV puts kubectl, helm, the kubeconfig and the binaries for envtest within reach.
ifeq ($(CONTEXT),)
ENV = eval "$$($(KUBE) env)"; export PATH="$(dir $(HELM)):$$PATH";
AUDIT_LOG = --audit-log "$$(dirname $$KUBECONFIG)/logs/audit.log"
DEMO_HINTS = --look-around='eval "$$(go -C hack/kube run . env)"' --clean-up='make cluster-down'
else
ENV = export PATH="$(dir $(HELM)):$$PATH";
endif

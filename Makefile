# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# `make` alone lists the targets. Nothing needs to be installed but Go and make:
# tools are built from their pinned modules into $QUOIN_CACHE.

SHELL := /usr/bin/env bash -o errexit -o pipefail -o nounset
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

QUOIN_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quoin
export QUOIN_CACHE

# Where the results of runs go.
ARTIFACTS := _artifacts
# Versions that bundles are made of unless one is named. Only `make e2e-upgrade` makes that of v1.34.4.
KUBERNETES_VERSIONS ?= v1.35.4 v1.36.3
# The version of `make bundle` and of `make release`; archives of images that a bundle has, too; of a release the image,
# whether it is pushed (yes), and where clusterctl finds the release when that is not dist/.
VERSION ?=
IMAGES ?=
IMAGE ?=
PUSH ?= no
URL ?=
# The folder of the database of `make vulnerabilities`.
VULNDB ?=
# Which benchmarks run; which fuzz targets, and how long each.
BENCH ?= .
FUZZ ?=
FUZZTIME ?= 20s
# The packages of `make mutate`, and flags of hack/mutate: --files, --shard, --changed-since, --checks.
PACKAGES ?= internal/quorum internal/controlplane internal/controlplane/plan internal/webhooks/controlplane \
	internal/etcd/read.go internal/etcd/peers.go controllers/quoincontrolplane/observe controllers/quoincontrolplane/history \
	controllers/quoincontrolplane/needs internal/rollout \
	internal/upgrade internal/skew internal/skew/plan internal/placement internal/suitability internal/outage internal/steady \
	internal/backup/retention.go internal/backup/signing.go
MUTATE ?=
# Tests of test/sim about single hosts; all others are about control planes.
SIM_HOSTS := EveryStep|TheOlder|AChangedHostKey|ALife|ALine|TheSimulation

# tool prints the path of a tool, building it when the cache lacks it.
tool = $$(hack/tools/build.sh $(1))


##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*##" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*##/ { printf "  %-20s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ See it work

.PHONY: quickstart
quickstart: ## Make a cluster of five hosts on this machine and upgrade it; SELF_MANAGED=1 then has it manage itself.
	go run ./hack/quickstart

.PHONY: quickstart-clean
quickstart-clean: ## Remove everything that quickstart made.
	go run ./hack/quickstart clean

##@ Develop

.PHONY: generate
generate: ## Generate deep copies of the API types.
	$(call tool,controller-gen) object paths=./api/...

.PHONY: manifests
manifests: ## Generate CRDs, RBAC roles and webhook configurations.
	hack/ci/manifests.sh

.PHONY: tidy
tidy: ## Tidy the modules: ours and those of the tools.
	go mod tidy
	@for module in hack/tools/*/go.mod; do (cd "$$(dirname "$$module")" && GOWORK=off go mod tidy); done

.PHONY: verify-generated
verify-generated: ## Fail when generated files or go.mod are not up to date.
	hack/ci/verify-generated.sh

.PHONY: checklist
checklist: ## Write docs/checklist.md from the tests.
	go run ./hack/checklist

##@ Test

.PHONY: test
test: lint verify-generated test-all ## Lint, unit and integration tests.

# test/sim takes longest by far, so it begins first, and all others run beside it. Integration tests depend on what the go
# command does not see, and are never taken from its cache. To collect garbage seldom spares a sixth of the processors' time,
# also of the API servers, etcd and managers that tests start.
.PHONY: test-all
test-all: ## Run the unit and the integration tests.
	KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" GOGC=400 go test -count 1 -timeout 58m ./test/sim ./test/integration/... \
		$$(go list ./... | grep -v -e /test/integration -e '/test/sim$$')

.PHONY: lint
lint: ## Run the linters.
	$(call tool,golangci-lint) run --timeout 30m

.PHONY: test-unit
test-unit: ## Run the unit tests.
	KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -timeout 30m $$(go list ./... | grep -v /test/integration)

.PHONY: test-integration
test-integration: ## Run the integration tests: a real API server, Cluster API's own managers, clusterctl.
	KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -count 1 -timeout 14m ./test/integration/...

.PHONY: test-sim
test-sim: ## Roll control planes of simulated hosts longer: a kill of the controllers at every event, other losses, restores.
	QUOIN_SIM_LONG=1 KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -count 1 -timeout 110m -v -skip '$(SIM_HOSTS)' ./test/sim \
		./internal/pivot/execute ./cmd/clusterctl-quoin ./hack/recovery

.PHONY: nightly
nightly: ## Run the random models of the control plane and of rollouts through troubles with thousands of seeds, and mutants.
	QUOIN_NIGHTLY=1 go test -count 1 -timeout 58m -run Model ./internal/quorum
	go test -count 1 -timeout 58m ./internal/quorum -rapid.checks=1000000
	go test -count 1 -timeout 2h -run TestPromisesHoldAlways ./internal/controlplane/plan -rapid.checks=1000000
	go test -count 1 -timeout 2h -run 'TestRemediationPromises|TestNobodySurvivesBesideAQuorum' ./internal/controlplane/plan -rapid.checks=1000000
	go test -count 1 -timeout 58m -run TestAnyStateHasAStepThatIsWhole ./internal/controlplane/plan -rapid.checks=1000000
	go test -count 1 -timeout 58m ./internal/rollout -rapid.checks=10000
	QUOIN_NIGHTLY=1 KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -count 1 -timeout 10h -v \
		-skip '$(SIM_HOSTS)' ./test/sim
	mkdir -p _artifacts && QUOIN_BACKUP_BIG="$$PWD/_artifacts" KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" \
		go test -count 1 -timeout 58m -v -run TestRestoreBig ./internal/backup
	$(MAKE) mutate

.PHONY: e2e
e2e: ## Run the end-to-end tests on real hosts in containers.
	go test -count 1 -timeout 58m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter='!full && !upgrade && !workers && !creations && !plugin && !topology && !gaps'

.PHONY: e2e-full
e2e-full: ## Run the longer end-to-end tests, with a control plane of three hosts, e2e-topology, e2e-upgrade, e2e-workers, e2e-plugin, e2e-quickstart, and docs/install.md.
	go test -count 1 -timeout 88m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=full
	$(MAKE) e2e-topology
	$(MAKE) e2e-upgrade
	$(MAKE) e2e-workers
	$(MAKE) e2e-plugin
	$(MAKE) e2e-quickstart
	$(MAKE) e2e-install

.PHONY: e2e-topology
e2e-topology: ## Make a cluster from the ClusterClass, edit its version and delete it.
	go test -count 1 -timeout 58m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=topology

.PHONY: e2e-upgrade
e2e-upgrade: ## Upgrade a control plane of three and its workers over two minors; makes the bundle of a third version.
	go test -count 1 -timeout 238m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=upgrade

.PHONY: e2e-workers
e2e-workers: ## Replace a pool of three under a RolloutPolicy, with a canary that works and one that does not.
	go test -count 1 -timeout 88m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=workers

.PHONY: e2e-install
e2e-install: ## Run every command of docs/install.md, against a kind cluster and hosts of its own.
	go test -count 1 -timeout 58m -tags e2e -v ./test/e2e/install

.PHONY: e2e-quickstart
e2e-quickstart: ## Run the quickstart until its cluster manages itself, and remove it; what fails is left to be looked at.
	SELF_MANAGED=1 $(MAKE) quickstart
	$(MAKE) quickstart-clean

.PHONY: e2e-plugin
e2e-plugin: ## Create, upgrade and delete a cluster of three that manages itself, with clusterctl's plugin alone.
	go test -count 1 -timeout 88m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=plugin

.PHONY: e2e-vm
e2e-vm: ## Inspect, provision, fence and reset a bare host in QEMU, with a kernel and a BMC of its own; as root.
	KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -count 1 -timeout 58m -tags e2e -v ./test/vm

.PHONY: e2e-creations
e2e-creations: ## Make 20 first control planes, half of them three at a time, and tell what each took.
	go test -count 1 -timeout 88m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.label-filter=creations

.PHONY: e2e-gaps
e2e-gaps: ## Roll a control plane of three, three times, and tell for how long a client was not answered.
	go test -count 1 -timeout 88m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast -ginkgo.label-filter=gaps

.PHONY: sim-transcripts
sim-transcripts: ## Record what plans do to a real host in a container, for simulated hosts to be held against.
	QUOIN_E2E_RECORD=1 go test -count 1 -timeout 30m -tags e2e -v ./test/e2e -ginkgo.v -ginkgo.fail-fast \
		-ginkgo.focus 'makes a cluster of bare hosts|while an image is imported|what the simulated hosts do'

.PHONY: bench
bench: ## Measure placement, events of hosts, moves, fleets of simulated hosts, and rollouts against Cluster API's own; BENCH=<regexp> picks.
	KUBEBUILDER_ASSETS="$$(hack/bundle/envtest-assets.sh)" go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 40m \
		./internal/placement ./internal/webhooks/... ./controllers/... $$(go list ./test/sim/...) ./test/peer

.PHONY: mutate
mutate: ## Change one thing at a time in PACKAGES that decide, and print what no test notices; MUTATE="--shard 1/8" takes a part.
	go run ./hack/mutate $(MUTATE) $(PACKAGES)

.PHONY: vulnerabilities
vulnerabilities: ## Fail when code is called that a database of vulnerabilities names: VULNDB=<folder like vuln.go.dev>.
	VULNDB='$(VULNDB)' hack/ci/vulnerabilities.sh

.PHONY: fuzz
fuzz: ## Fuzz each parser of what users and hosts send, each for FUZZTIME (20s); FUZZ=<regexp> picks.
	FUZZTIME='$(FUZZTIME)' FUZZ='$(FUZZ)' hack/ci/fuzz.sh

##@ Hosts

.PHONY: host-conformance
host-conformance: ## Try whether a real machine can serve: HOST=user@address[:port] KEY=path; alone it says more.
	@test -n "$(HOST)" -a -n "$(KEY)" || { \
		echo 'usage: make host-conformance HOST=user@address[:port] KEY=path [BASTION=user@address[:port]] [KNOWN_HOST_KEY="ssh-ed25519 ..."] [SUDO_COMMAND=path] [OUTPUT=report.md] [FLAGS=...]'; \
		echo '       go run ./hack/conformance --help says more'; exit 2; }
	go run ./hack/conformance --host '$(HOST)' --key '$(KEY)' $(if $(BASTION),--bastion '$(BASTION)') \
		$(if $(KNOWN_HOST_KEY),--known-host-key '$(KNOWN_HOST_KEY)') $(if $(SUDO_COMMAND),--sudo-command '$(SUDO_COMMAND)') \
		$(if $(OUTPUT),--output '$(OUTPUT)') $(FLAGS)

##@ Build

.PHONY: plugin
plugin: ## Build clusterctl's plugin: bin/clusterctl-quoin. In the PATH, `clusterctl quoin` runs it.
	CGO_ENABLED=0 go build -trimpath -o bin/clusterctl-quoin ./cmd/clusterctl-quoin

.PHONY: bundle
bundle: ## Make the bundle of VERSION, or those of all versions; with IMAGES, archives that every host gets too, in a folder own/.
	@for version in $(or $(VERSION),$(KUBERNETES_VERSIONS)); do \
		BUNDLE_IMAGES='$(IMAGES)' hack/bundle/make-bundle.sh "$$version"; done

.PHONY: images
images: ## Build the managers' images and those of the test hosts.
	hack/components/images.sh
	test/hostimage/build.sh

.PHONY: release
release: ## Make a release in dist/: VERSION=v0.1.0 IMAGE=registry.example.com/quoin/manager [PUSH=yes] [URL=...]
	@go run ./hack/release --version '$(VERSION)' --image '$(IMAGE)' --push '$(PUSH)' --url '$(URL)'

.PHONY: clean
clean: ## Remove build results from the checkout; the cache stays.
	rm -rf dist bin $(ARTIFACTS)

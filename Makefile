# What a user, a contributor and CI run. `make` alone prints this list.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO      ?= go
BIN     := bin/warpgauge
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The demo's simulated node and address, and what `make run` gets on top.
DEMO_ADDRESS ?= 127.0.0.1:9400
DEMO_PROFILE ?= dgx-h100
ARGS         ?=

FUZZTIME  ?= 5s
BENCHTIME ?= 1s
ATTACK_SECONDS ?= 20
SIZE_MINUTES ?= 15
IMAGE     ?= warpgauge:$(VERSION)

# For NVIDIA's Go bindings, which the vendor collectors are made for: their
# headers mark functions as deprecated that they wrap themselves: some 100 lines of
# compiler warnings that no user can act on.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

LINT_VERSION := v2.15.0
LINT         := .tools/golangci-lint-$(LINT_VERSION)/golangci-lint
ACTIONLINT   := .tools/actionlint-$(shell awk '$$1 == "github.com/rhysd/actionlint" { print $$2 }' test/tools/lint/go.mod)/actionlint
BENCHSTAT    := .tools/benchstat-$(shell awk '$$1 == "golang.org/x/perf" { print $$2 }' test/tools/lint/go.mod)/benchstat
GREMLINS     := .tools/gremlins-$(shell awk '$$1 == "github.com/go-gremlins/gremlins" { print $$2 }' test/tools/mutate/go.mod)/gremlins
DEADCODE     := .tools/deadcode-$(shell awk '$$1 == "golang.org/x/tools" { print $$2 }' test/tools/lint/go.mod)/deadcode

# What make test leaves to make test-all and CI: end-to-end tests of the real binary,
# and tests that take more than some seconds on a quiet core, by their names.
LONG_TESTS := TestEachMissingSymbol|TestSoak|TestSimulatedNodesAreWell|TestSimulatedNode|TestSimulatedOldBoard|TestRulesByPromtool|TestBrowser.*
SLOW_TESTS := ^(TestE2E.*|TestTornRows|$(LONG_TESTS))$$
# End-to-end tests that the race detector does not run: of rules, dashboards and manifests, where the binary only
# serves, and of limits of memory and times.
E2E_WITHOUT_RACE := TestE2E(Alerts|AMDGPUOperator|Attack|Chart|Dashboards|GPUOperator|Isolation|Slurm).*

# Prints each package as it ends, and what was skipped and why.
RESULTS := $(GO) run ./internal/gate/results

# Tools that have a module of their own; its go.mod says which versions.
CHART_TOOLS    := test/tools/chart
tool_version    = $(shell awk '$$1 == "$(1)" && $$2 ~ /^v/ { print $$2; exit }' $(CHART_TOOLS)/go.mod)
HELM           := .tools/helm-$(call tool_version,helm.sh/helm/v3)/helm
HELM_UNITTEST  := .tools/helm-unittest-$(call tool_version,github.com/helm-unittest/helm-unittest)/helm-unittest

# The cluster of make e2e-cluster: Kubernetes, etcd.
CLUSTER       := test/cluster
KUBE_VERSION  := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' $(CLUSTER)/go.mod)
KUBE_DIR      := .tools/kubernetes-$(KUBE_VERSION)
KUBE          := $(addprefix $(KUBE_DIR)/,kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)
ETCD          := .tools/etcd-server/etcd

VICTORIA_TOOLS := test/tools/victoriametrics
VICTORIA       := .tools/victoriametrics-$(shell awk '$$1 == "github.com/VictoriaMetrics/VictoriaMetrics" { print $$2; exit }' $(VICTORIA_TOOLS)/go.mod)
OPERATOR      := github.com/prometheus-operator/prometheus-operator@$(shell awk '$$1 == "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring" { print $$2 }' go.mod)

SUPPLY        := test/tools/supply
GOVULNCHECK   := .tools/govulncheck-$(shell awk '$$1 == "golang.org/x/vuln" { print $$2 }' $(SUPPLY)/go.mod)/govulncheck
VULN_DB       ?= https://vuln.go.dev

PACKAGE_TOOLS := test/tools/packages
NFPM          := .tools/nfpm-$(shell awk '$$2 == "github.com/goreleaser/nfpm/v2" { print $$3 }' $(PACKAGE_TOOLS)/go.mod)/nfpm

##@ Use

.PHONY: demo
demo: build ## Serve a simulated 8-GPU node on DEMO_ADDRESS (needs no GPU)
	@echo "a simulated node; the log below names its address (Ctrl-C ends it)"
	@exec $(BIN) --address=$(DEMO_ADDRESS) --enable-fake --enable-only=fake --fake-profile=$(DEMO_PROFILE) $(ARGS)

.PHONY: run
run: build ## Serve the GPUs of this machine on :9400; ARGS="…" adds flags
	@exec $(BIN) $(ARGS)

.PHONY: build
build: warpctl ## Build bin/warpgauge and bin/warpctl
	@# -z lazy, not the default of every compiler: NVML's functions are there once it is open.
	@# Without cgo Go would build a program that reads no NVIDIA GPU, and say nothing.
	@CGO_ENABLED=1 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION) -extldflags=-Wl,-z,lazy" -o $(BIN) ./cmd/warpgauge

.PHONY: warpctl
warpctl: ## Build bin/warpctl, which asks exporters
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(dir $(BIN))warpctl ./cmd/warpctl

.PHONY: warpctl-platforms
warpctl-platforms: ## Build warpctl for every platform of a release, and drop the results
	@for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -o /dev/null ./cmd/warpctl; done

.PHONY: fleet
fleet: ## Build bin/warpgauge-fleet, the server that brings lists to many nodes
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN)-fleet ./cmd/warpgauge-fleet

.PHONY: image
image: ## Build the container image with docker, podman or buildah
	@# Only docker knows the builder's platform in every version.
	@arguments=(--build-arg VERSION=$(VERSION) --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null) -t $(IMAGE)); platform=linux/$$($(GO) env GOHOSTARCH); \
	if command -v docker >/dev/null && docker info >/dev/null 2>&1; then docker build "$${arguments[@]}" .; \
	elif command -v podman >/dev/null; then podman build --build-arg BUILDPLATFORM=$$platform "$${arguments[@]}" .; \
	elif command -v buildah >/dev/null; then buildah bud --build-arg BUILDPLATFORM=$$platform "$${arguments[@]}" .; \
	else echo "make image needs docker, podman or buildah" >&2; exit 1; fi

.PHONY: packages
packages: $(NFPM) ## Make the Debian package, the RPM package and the tarball in dist
	@NFPM=$(NFPM) deploy/packages/build dist $(ARCH)

.PHONY: release
release: $(NFPM) $(HELM) ## Make everything that a release has, in dist: make release VERSION=0.1.0; see deploy/release
	@NFPM=$(abspath $(NFPM)) HELM=$(abspath $(HELM)) deploy/release $(VERSION) dist

.PHONY: sbom
sbom: build ## Write the licences of what bin/warpgauge contains, and its SBOM (CycloneDX), to dist
	@mkdir -p dist && CGO_ENABLED=0 $(GO) build -C $(SUPPLY) -o $(abspath bin)/supply .
	@bin/supply -version $(VERSION) -licenses dist/THIRD_PARTY_LICENSES -sbom dist/warpgauge.cdx.json $(BIN)
	@echo dist/THIRD_PARTY_LICENSES dist/warpgauge.cdx.json

##@ Check

.PHONY: check
check: fmt vet lint test ## What every change must pass: fmt, vet, lint, test

.PHONY: test
test: ## All tests but the slow ones: about two minutes on two cores
	@echo "tests of $$($(GO) list ./... | wc -l) packages, each printed as it ends; left to make test-all: $(SLOW_TESTS)"
	@$(GO) test -p 4 -json -skip '$(SLOW_TESTS)' ./... | $(RESULTS)

.PHONY: test-all
test-all: ## All tests, those of the real binary with a real Prometheus included: what CI runs
	@$(GO) test -json ./... | $(RESULTS)

# What CI runs after test and race: nothing twice.
.PHONY: test-rest
test-rest: ## The slow tests that make race does not run
	@$(GO) test -p 4 -json -run '^($(E2E_WITHOUT_RACE)|$(LONG_TESTS))$$' ./... | $(RESULTS)

.PHONY: test-times
test-times: ## All tests again, and the slowest by name
	@$(GO) test -count=1 -json ./... | $(RESULTS) -slowest=40

.PHONY: race
race: race-packages race-e2e ## All tests under the race detector

# Apart, since CI has a stage for each: tests of the real binary are TestE2E….
.PHONY: race-packages race-e2e
race-packages:
	$(GO) test -race -skip '^Test(E2E|Browser)' ./benchmarks/... ./cmd/... ./collectors/... ./internal/... ./extensions/... ./pkg/...
race-e2e:
	$(GO) test -race -count=1 -v -run '^TestE2E' -skip '^$(E2E_WITHOUT_RACE)$$' ./cmd/warpgauge

.PHONY: attack
attack: ## Attack the real binary over loopback, ATTACK_SECONDS each way, and write the table of docs/limits.md
	WARPGAUGE_ATTACK_SECONDS=$(ATTACK_SECONDS) $(GO) test -count=1 -v -timeout=1h -run '^TestE2E(Attack|HostileFiles|StandardError)' ./cmd/warpgauge -update

.PHONY: sizes
sizes: ## Measure the memory of the real binary for SIZE_MINUTES, and write the table of benchmarks/README.md
	WARPGAUGE_SIZE_MINUTES=$(SIZE_MINUTES) $(GO) test -count=1 -v -timeout=1h -run '^TestE2ESizes$$' ./cmd/warpgauge -update

.PHONY: e2e
e2e: ## Only the end-to-end tests, each named as it runs
	$(GO) test -count=1 -v -run '^TestE2E' ./cmd/warpgauge

.PHONY: image-test
image-test: ## Build the image without a registry, start it as strictly as a cluster may
	@deploy/image/test

.PHONY: release-test
release-test: $(NFPM) $(HELM) ## Make a release of a copy, and give another copy a public home
	@NFPM=$(abspath $(NFPM)) HELM=$(abspath $(HELM)) deploy/release-test

.PHONY: packages-test
packages-test: $(NFPM) ## The cheap share of it: both packages in a copy of this system, the unit under a real systemd
	@NFPM=$(NFPM) deploy/packages/test

.PHONY: install-test
install-test: $(NFPM) $(HELM) ## Try every way to install the release in dist (make release), each in a fresh root file system; WAYS="…" some
	@NFPM=$(abspath $(NFPM)) HELM=$(abspath $(HELM)) deploy/install-test dist $(WAYS)

.PHONY: arm64-test
arm64-test: ## The binary and what the architecture matters to, for arm64 under qemu; PACKAGES="…" has all tests of those
	@GO="$(GO)" .ci/arm64 $(PACKAGES)

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: fmt
fmt: ## Format all Go files
	@gofmt -s -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: lint
lint: $(LINT) $(ACTIONLINT) words size deadcode ## golangci-lint (with staticcheck), shellcheck, actionlint, words, size, deadcode
	@$(LINT) run --allow-serial-runners ./...
	@if command -v shellcheck >/dev/null; then shellcheck -x $(SCRIPTS); else echo "shellcheck is not installed: scripts not checked"; fi
	@$(ACTIONLINT)

SCRIPTS := .ci/run .ci/phrases .ci/vulncheck benchmarks/compare deploy/build .ci/arm64 .ci/arm64-exec .ci/generate-check .ci/fuzz .ci/words .ci/deadcode collectors/rocm/rocmtest/fake-amd-sysfs.sh \
	deploy/slurm/warpgauge-jobs deploy/slurm/warpgauge-health cmd/warpgauge/testdata/slurm-node deploy/image/bases deploy/image/test \
	deploy/install-test deploy/release deploy/release-test deploy/rename deploy/packages/build deploy/packages/test deploy/packages/root.bash deploy/packages/sysroot deploy/packages/version deploy/packages/deb/* \
	deploy/systemd/boot deploy/systemd/test dashboards/pictures/install dashboards/pictures/make dashboards/pictures/types

.PHONY: words
words: ## Words and turns of phrase that the house style does not use (.ci/words.list, .ci/phrases)
	@.ci/words && .ci/phrases

.PHONY: size
size: ## Count the product: lines, packages, edges, files per type; fail above the limits
	@$(GO) run ./internal/gate/size

.PHONY: deadcode
deadcode: $(DEADCODE) ## Functions that no program reaches, and test helpers that no test does
	@DEADCODE=$(DEADCODE) .ci/deadcode

# Not in the gate: what it says changes without a commit.
.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## Known vulnerabilities in what the program calls, by the database VULN_DB
	@GOVULNCHECK=$(GOVULNCHECK) .ci/vulncheck $(VULN_DB)

# What make mutate changes, folders below included.
MUTATE ?= extensions/health pkg/rows pkg/events pkg/supervisor pkg/kube extensions/remote

# ENGINE is put in front of the commands: what runs them where NVIDIA's host engine is installed.
.PHONY: test-dcgm
test-dcgm: ## The whole exporter, and the collector's tests, over NVIDIA's own DCGM 4 and a simulated NVML (an hour); ENGINE="sudo chroot DIR" runs them elsewhere
	@$(ENGINE) sh -c 'command -v nv-hostengine' >/dev/null || { echo "skipped: nv-hostengine of NVIDIA's DCGM 4 is not installed"; exit 0; }; \
	$(ENGINE) env DCGM_TEST_REAL=1 $(GO) test -count=1 -timeout=120m -v ./collectors/dcgm ./test/dcgm

# Not in the gate: it takes hours, and some changes make no difference. The copy has no tools and no built files, which
# gremlins would copy for each worker. -S lct: changes that lived, lines that no test covers, time-outs.
.PHONY: mutate
mutate: $(GREMLINS) ## Change one condition or sum at a time and list the changes that no test of the package notices; MUTATE="pkg/rows …" takes those folders
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; mkdir "$$dir/tree" "$$dir/tmp"; \
	git ls-files -z --cached --others --exclude-standard | tar --null -T - -c | tar -x -C "$$dir/tree"; \
	cd "$$dir/tree"; for folder in $(MUTATE); do \
		echo "$$folder:"; TMPDIR="$$dir/tmp" $(abspath $(GREMLINS)) unleash --timeout-coefficient 6 -S lct -E kubetest "./$$folder"; done

# -e: a proxy that refuses a module's list of versions stops only that module.
.PHONY: outdated
outdated: ## Modules with newer versions, of all go.mod files
	@for mod in $$(git ls-files '*go.mod'); do \
		echo "$$mod:"; (cd "$$(dirname "$$mod")" && $(GO) list -e -mod=readonly -m -u \
			-f '{{if not .Indirect}}{{if .Update}}  {{.Path}} {{.Version}} -> {{.Update.Version}}{{else if .Error}}  {{.Path}} {{.Version}}: not known: {{.Error.Err}}{{end}}{{end}}' all | cut -c1-200 | sed '/^ *$$/d'); \
	done

.PHONY: pure
pure: ## Build and vet without cgo
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/warpgauge
	CGO_ENABLED=0 $(GO) vet ./...

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME (default 5s)
	@GO="$(GO)" .ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## Every benchmark once, to see that it still runs
	$(GO) test -short -run='^$$' -bench=. -benchtime=1x ./...

.PHONY: bench-compare
bench-compare: $(BENCHSTAT) ## Benchmarks of the last release, or of BASE, and of this tree in turns; fails if one got slower
	@GO="$(GO)" BENCHSTAT=$(abspath $(BENCHSTAT)) benchmarks/compare $(BASE)

.PHONY: bench-full
bench-full: ## Every benchmark for BENCHTIME (default 1s), with allocations
	$(GO) test -run='^$$' -bench=. -benchtime=$(BENCHTIME) -benchmem -timeout=60m ./...

.PHONY: chart
chart: tools-chart ## Check the Helm chart: lint, render, unit tests, manifests
	WARPGAUGE_REQUIRE=helm,helm-unittest $(GO) test -count=1 ./deploy/helm/...

.PHONY: victoriametrics-test
victoriametrics-test: $(VICTORIA)/vmalert-tool ## Parse rules and panels as VictoriaMetrics does, and run the tests of rules with its engine
	cd $(VICTORIA_TOOLS) && VMALERT_TOOL=$(abspath $(VICTORIA)/vmalert-tool) $(GO) test -count=1 -v .

.PHONY: chart-server
chart-server: tools-chart ## Ask the API server of KUBECONFIG whether it takes each variant of the chart
	@test -n "$(KUBECONFIG)" || { echo "make chart-server needs KUBECONFIG" >&2; exit 1; }
	WARPGAUGE_CHART_KUBECONFIG="$(abspath $(KUBECONFIG))" $(GO) test -count=1 -v -run '^TestServer$$' ./deploy/helm

.PHONY: e2e-cluster
e2e-cluster: build tools-chart tools-cluster ## Run the packaged chart in a real cluster of one node with simulated GPUs (2 minutes, once built); RELEASE=FOLDER takes chart and image of make release
	@$(GO) test -c -o bin/chart.test ./deploy/helm
	@CGO_ENABLED=0 $(GO) build -C $(CLUSTER) -o $(abspath bin)/cluster .
	@CGO_ENABLED=0 $(GO) build -C $(CLUSTER) -o $(abspath bin)/cluster-pause ./pause
	@CGO_ENABLED=0 $(GO) build -o bin/cluster-warpgauge ./cmd/warpgauge
	@cd / && $(GO) mod download $(OPERATOR)
	@bin/cluster -crds "$$($(GO) env GOMODCACHE)/$(OPERATOR)/example/prometheus-operator-crd" $(if $(RELEASE),-release $(RELEASE))

.PHONY: dashboards-types
dashboards-types: ## Check the dashboards against Grafana's own types (npm)
	@dashboards/pictures/types

##@ Real GPUs

.PHONY: gpu-check
gpu-check: build bin/gpu-check ## Compare with nvidia-smi on this machine's GPUs; ARGS="…" adds flags
	@exec bin/gpu-check $(ARGS)

.PHONY: bin/gpu-check
bin/gpu-check:
	@$(GO) build -trimpath -o $@ ./cmd/gpu-check

.PHONY: gpu-check-simulated
gpu-check-simulated: build bin/gpu-check ## The same on a simulated node, to see that the check works
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(GO) run ./collectors/nvml/nvmltest/cmd/nvmlfake --dir="$$dir" --gpus=2 >/dev/null; \
	$(GO) build -o "$$dir/nvidia-smi" ./collectors/nvml/nvmltest/cmd/nvidia-smi; \
	LD_LIBRARY_PATH="$$dir" bin/gpu-check --nvidia-smi="$$dir/nvidia-smi" $(ARGS)

GPU_CHECK_BUNDLE = dist/warpgauge-gpu-check-$(VERSION)-$(shell $(GO) env GOARCH)

.PHONY: gpu-check-bundle
gpu-check-bundle: build bin/gpu-check ## Both binaries in a tarball, for a machine that has only NVIDIA's driver
	@rm -rf $(GPU_CHECK_BUNDLE) && mkdir -p $(GPU_CHECK_BUNDLE) && cp $(BIN) bin/gpu-check LICENSE $(GPU_CHECK_BUNDLE)
	@CGO_ENABLED=0 $(GO) build -C $(SUPPLY) -o $(abspath bin)/supply .
	@cd $(GPU_CHECK_BUNDLE) && $(abspath bin)/supply -source $(CURDIR) -version $(VERSION) -licenses THIRD_PARTY_LICENSES -sbom warpgauge.cdx.json warpgauge gpu-check
	@tar -C $(GPU_CHECK_BUNDLE) -czf $(GPU_CHECK_BUNDLE).tar.gz . && rm -r $(GPU_CHECK_BUNDLE)
	@bin/supply -version $(VERSION) -sbom $(GPU_CHECK_BUNDLE).tar.gz.cdx.json -subject $(GPU_CHECK_BUNDLE).tar.gz $(BIN) bin/gpu-check
	@echo $(GPU_CHECK_BUNDLE).tar.gz

##@ Generated files

.PHONY: generate
generate: ## Write the catalogue, the generated pages of docs/, dashboards and manifests
	$(GO) generate ./...

.PHONY: manifests
manifests: $(HELM) ## Render deploy/kubernetes and deploy/openshift from the chart
	@$(GO) run ./deploy/helm/generate -helm $(abspath $(HELM)) -manifests deploy

.PHONY: generate-check
generate-check: ## Fail if generated files are not up to date
	@.ci/generate-check

.PHONY: pictures
pictures: build ## Draw docs/pictures with Grafana's panels (npm, Chromium, Prometheus; a quarter of an hour)
	@test -x "$${CHROMIUM:-/usr/bin/chromium}" || { echo "make pictures needs Chromium at /usr/bin/chromium or in CHROMIUM" >&2; exit 1; }
	@dashboards/pictures/install
	@$(GO) run ./dashboards/pictures/nodes dashboards/pictures/make docs/pictures

.PHONY: live-pictures
live-pictures: build ## Draw docs/pictures/live-… of the live page with simulated GPUs (Chromium; two minutes)
	$(GO) test -count=1 -run '^TestBrowserPictures$$' ./extensions/live/page -pictures=$(abspath $(BIN))

.PHONY: docs
docs: generate docs-check ## Write the generated pages and check all pages

.PHONY: docs-check
docs-check: words ## Check all pages: links, commands, names, words and their number
	$(GO) test -count=1 ./docs ./internal/testkit/pages
	$(GO) test -count=1 -run '^TestCommandsOfPages$$' ./cmd/warpgauge

.PHONY: clean
clean: ## Remove what was built (tools stay; they are in .tools)
	rm -rf bin dist

.PHONY: help
help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools: $(LINT) $(DEADCODE) $(ACTIONLINT) $(BENCHSTAT) ## Build the pinned tools of make lint and make bench-compare into .tools

$(DEADCODE): test/tools/lint/go.sum
	@cd test/tools/lint && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install golang.org/x/tools/cmd/deadcode && touch $(abspath $@)

$(BENCHSTAT): test/tools/lint/go.sum
	@cd test/tools/lint && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install golang.org/x/perf/cmd/benchstat && touch $(abspath $@)

$(ACTIONLINT): test/tools/lint/go.sum
	@cd test/tools/lint && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install github.com/rhysd/actionlint/cmd/actionlint && touch $(abspath $@)

$(GREMLINS): test/tools/mutate/go.sum
	@cd test/tools/mutate && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install github.com/go-gremlins/gremlins/cmd/gremlins && touch $(abspath $@)

$(LINT):
	@echo "build golangci-lint $(LINT_VERSION) into .tools (about a minute, once)"
	@GOBIN=$(abspath $(dir $@)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

$(GOVULNCHECK): $(SUPPLY)/go.sum
	@cd $(SUPPLY) && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install golang.org/x/vuln/cmd/govulncheck && touch $(abspath $@)

.PHONY: tools-chart
tools-chart: $(HELM) $(HELM_UNITTEST) ## Build what checks the Helm chart (one to two minutes, once)

# Helm tells charts and linters that it is the Kubernetes of its libraries, by variables
# that its own Makefile sets as well.
HELM_KUBE    = $(subst ., ,$(patsubst v0.%,1.%,$(call tool_version,k8s.io/client-go)))
HELM_LDFLAGS = -s -w -X helm.sh/helm/v3/internal/version.version=$(call tool_version,helm.sh/helm/v3) \
	$(foreach p,pkg/chartutil pkg/lint/rules,-X helm.sh/helm/v3/$(p).k8sVersionMajor=$(word 1,$(HELM_KUBE)) -X helm.sh/helm/v3/$(p).k8sVersionMinor=$(word 2,$(HELM_KUBE)))
chart_tool   = cd $(CHART_TOOLS) && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install -trimpath -ldflags "$(HELM_LDFLAGS)"

$(HELM): $(CHART_TOOLS)/go.sum
	@$(chart_tool) helm.sh/helm/v3/cmd/helm && touch $(abspath $@)

$(HELM_UNITTEST): $(CHART_TOOLS)/go.sum
	@$(chart_tool) github.com/helm-unittest/helm-unittest/cmd/helm-unittest && touch $(abspath $@)

.PHONY: tools-packages
tools-packages: $(NFPM) ## Build what makes the packages (half a minute, once)

$(NFPM): $(PACKAGE_TOOLS)/go.sum
	@cd $(PACKAGE_TOOLS) && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) $(GO) install -trimpath -ldflags "-s -w" github.com/goreleaser/nfpm/v2/cmd/nfpm && touch $(abspath $@)

.PHONY: tools-cluster
tools-cluster: $(KUBE) $(ETCD) ## Build Kubernetes for e2e-cluster (8 minutes on 2 cores, once)

# Kubernetes and its API server's clients go by the version that is linked in.
KUBE_FLAG    = -X k8s.io/component-base/version
KUBE_LDFLAGS = -s -w $(KUBE_FLAG).gitVersion=$(KUBE_VERSION) $(KUBE_FLAG).gitMajor=1 $(KUBE_FLAG).gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION)))

$(KUBE) &: $(CLUSTER)/go.sum
	@echo "build Kubernetes $(KUBE_VERSION) into .tools (some 6 minutes of CPU time, once)"
	@mkdir -p $(KUBE_DIR) && CGO_ENABLED=0 $(GO) build -C $(CLUSTER) -ldflags "$(KUBE_LDFLAGS)" -o $(abspath $(KUBE_DIR))/ \
		$(addprefix k8s.io/kubernetes/cmd/,$(notdir $(KUBE))) && touch $(KUBE)

$(VICTORIA)/vmalert-tool: $(VICTORIA_TOOLS)/go.sum
	@mkdir -p $(VICTORIA) && CGO_ENABLED=0 $(GO) build -C $(VICTORIA_TOOLS) -ldflags "-s -w" -o $(abspath $(VICTORIA))/ \
		github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert-tool && touch $@

# Debian's, from its package without installing it; otherwise the one on PATH.
$(ETCD):
	@mkdir -p $(dir $@); \
	if command -v etcd >/dev/null; then ln -sf "$$(command -v etcd)" $@; exit; fi; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; cd "$$dir"; \
	apt-get download -qq -o APT::Sandbox::User=root etcd-server && dpkg-deb --extract etcd-server_*.deb . && cp usr/bin/etcd "$(abspath $@)"

# check, test, race, fuzz, bench: the five words. soak is for an idle machine and an hour.
GO ?= go
FUZZTIME ?= 6s

.PHONY: check test race fuzz bench soak

check:
	test -z "$$(gofmt -l .)"
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	GOOS=darwin $(GO) build ./...
	GOOS=windows $(GO) build ./...

test:
	$(GO) test ./...

race:
	$(GO) test -race ./...

# Every fuzzer of the module, FUZZTIME each.
fuzz:
	.ci/fuzz $(FUZZTIME)

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# The long campaigns: 500 kills of an appending process, an import of a million
# events that is killed in the middle, 300 power cuts each under appends, units of
# appends and writers of jobs (as root), a thousand panels whose owner is killed, a job
# whose owner is killed 500 times, and one on a server that is killed as its client is,
# a thousand jobs in and out of the folder, the views of ten million events,
# two thousand damaged stores, ten gigabytes opened after a kill, a cluster whose nodes
# are killed, many more random histories.
soak:
	TALLY_SOAK=1 $(GO) test -timeout 90m -run 'Kill|Import|Memory|Projectors' -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 90m -run LargeStore -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 120m -run PowerCut -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 90m -run 'Damage|StartAfterAKill|Cluster' -v ./embedded
	TALLY_SOAK=1 $(GO) test -timeout 60m -run 'PanelKilled|PanelModel' -v ./stores/errata
	TALLY_SOAK=1 $(GO) test -timeout 60m -run 'Oracle|ImportWhileWritten' -v ./stores/perstack/perstackdir
	TALLY_SOAK=1 $(GO) test -timeout 120m -run 'KilledInAnyCall|KilledOnServer|DelegateProcesses' -v ./stores/perstack
	.ci/fuzz 60s
	$(GO) test -timeout 60m ./formats/... ./stores/...
	$(GO) test -timeout 60m ./stores/perstack/internal/share ./stores/perstack/internal/secret -rapid.checks=20000
	$(GO) test -timeout 60m ./projector -rapid.checks=20000
	$(GO) test -timeout 60m ./projector/catalog -rapid.checks=2000
	$(GO) test -timeout 60m ./log/logtest -rapid.checks=2000

# check, test, race, fuzz, bench: the five words. soak is for an idle machine and an hour,
# agents for one with node, npm and 1 GB in AGENTS.
GO ?= go
FUZZTIME ?= 6s
AGENTS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tally-agents

.PHONY: check test race fuzz bench soak agents

check:
	test -z "$$(gofmt -l .)"
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	GOOS=darwin $(GO) build ./...
	GOOS=windows $(GO) build ./...
	cd cmd/tally-bench && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./...
	cd cmd/tally-bench && GOOS=darwin $(GO) build -o /dev/null . && GOOS=windows $(GO) build -o /dev/null .

test:
	$(GO) test ./...
	cd cmd/tally-bench && $(GO) test ./...

race:
	$(GO) test -race ./...
	cd cmd/tally-bench && $(GO) test -race ./...

# Every fuzzer of the module, FUZZTIME each.
fuzz:
	.ci/fuzz $(FUZZTIME)

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# The long campaigns: 500 kills of an appending process, with few sessions and with 20,000 new ones a minute, an import of a million
# events that is killed in the middle, 300 power cuts each under appends to few and to new sessions, units of
# appends and writers of jobs (as root), a thousand panels whose owner is killed, a job
# whose owner is killed 500 times, and one on a server that is killed as its client is,
# a thousand workers that stand still beyond their lease, workers whose owner is killed,
# a thousand jobs in and out of the folder, the views of ten million events,
# teams whose messages are delivered by who dies, two thousand damaged stores, each record of a store
# damaged under every command, a transcript of two gigabytes, secrets in every spelling, ten gigabytes opened after a kill, a cluster whose nodes
# are killed, what the log promises on every kind of owner, every fault that a test must notice, three thousand programs of
# panels, stores on somebody else's server under the race detector, builds for other
# systems, many more random histories, those of files among them, and the live tree: its
# figures beside its peers (TestTreeFigures, whose parts run by themselves), very many files,
# links that are swapped under strace, edits for TALLY_STEADY and rest for TALLY_IDLE.
soak:
	TALLY_SOAK=1 $(GO) test -timeout 90m -run 'Kill|FollowAndMove|Import|Memory|Projectors|SumsStay|Canaries|VerifyGrown' -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 90m -run LargeStore -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 120m -run PowerCut -v ./cmd/...
	TALLY_SOAK=1 $(GO) test -timeout 180m -run 'TestTree|TestTeamIdle' -v ./cmd
	TALLY_SOAK=1 $(GO) test -timeout 180m -run 'Damaged|AmongManySessions' -v ./cmd/internal/program
	TALLY_SOAK=1 $(GO) test -timeout 90m -run 'Damage|StartAfterAKill|Cluster|Promises|TreeWriters|Forget(Cuts|Killed)|DuringForget|EraseBeside' -v ./embedded
	TALLY_SOAK=1 $(GO) test -timeout 60m -run 'PanelKilled|PanelModel' -v ./stores/errata
	TALLY_SOAK=1 $(GO) test -timeout 60m -run 'Oracle|ImportWhileWritten' -v ./stores/perstack/perstackdir
	TALLY_SOAK=1 $(GO) test -timeout 120m -run 'KilledInAnyCall|KilledOnServer|DelegateProcesses' -v ./stores/perstack
	TALLY_SOAK=1 $(GO) test -timeout 120m -run 'Inbox(Team|OfMany)|Campaign|JanitorLives|Restart|QueueFencing|Hostile|Killed|Transcript' -v ./stores/tavern
	TALLY_SOAK=1 $(GO) test -timeout 90m -run 'TestFaults$$' -v ./internal/testkit/faults
	.ci/fuzz 60s
	TALLY_SOAK=1 $(GO) test -race -short -timeout 60m . ./stores/...
	GOOS=darwin $(GO) build ./...
	GOOS=windows $(GO) build ./...
	TALLY_SOAK=1 $(GO) test -timeout 60m ./internal/tree ./internal/layouts/... ./internal/ingest/redact
	$(GO) test -timeout 60m ./internal/layouts/... ./stores/...
	$(GO) test -timeout 60m ./stores/perstack/internal/share ./stores/perstack/internal/secret -rapid.checks=20000
	$(GO) test -timeout 60m ./projector -rapid.checks=20000
	TALLY_SOAK=1 $(GO) test -timeout 60m -run 'Keepers|ViewsFollow' ./projector/view -rapid.checks=2000
	$(GO) test -timeout 60m ./internal/catalog -rapid.checks=2000
	$(GO) test -timeout 60m ./internal/testkit/logtest -rapid.checks=2000
	$(GO) test -timeout 60m ./internal/ingest -rapid.checks=1000
	$(GO) test -timeout 60m -run TestMergeLaws ./internal/storecopy -rapid.checks=500

# What tally has of sessions that the real programs have meanwhile: Codex, of the versions
# that copy what they fork and that refer to it, Gemini CLI, pi. They are installed once, and
# talk to models that are played on the loopback interface.
agents: $(AGENTS)/codex-0.169 $(AGENTS)/codex-0.118 $(AGENTS)/gemini-0.61 $(AGENTS)/pi-0.73
	TALLY_AGENTS=$(AGENTS) $(GO) test -count=1 -timeout 10m -v ./cmd/agentstest

$(AGENTS)/codex-0.169: PACKAGE = @openai/codex@0.169.0
$(AGENTS)/codex-0.118: PACKAGE = @openai/codex@0.118.0
$(AGENTS)/gemini-0.61: PACKAGE = @google/gemini-cli@0.61.0 --omit=optional
$(AGENTS)/pi-0.73: PACKAGE = @mariozechner/pi-coding-agent@0.73.1
$(AGENTS)/%:
	npm install --prefix $@.part --no-audit --no-fund --ignore-scripts $(PACKAGE)
	mv $@.part $@

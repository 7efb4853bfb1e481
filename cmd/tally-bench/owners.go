package main

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime/pprof"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// owner is a part of tally that processor time belongs to. A sample belongs to the first owner in the list whose text
// begins the name of a function on its stack. Views come before the runner that calls them, and the collector before
// all: an allocation may have to help it.
type owner struct {
	name string
	in   []string
}

var owners = []owner{
	{"collector", []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
	{"view catalog", []string{methodsOf[catalog.Catalog]()}},
	{"view search", []string{methodsOf[catalog.Search]()}},
	{"view work", []string{methodsOf[catalog.Work]()}},
	{"snapshots", []string{methodsOf[projector.Snapshotter]()}},
	{"supply of views", []string{methodsOf[projector.Runner]()}},
	{"server", []string{"github.com/nats-io/nats-server/"}},
	{"committer", []string{reflect.TypeFor[log.Ack]().PkgPath() + ".(*committer)"}},
	{"measuring", []string{"main.(*feed)."}},
	{"append", []string{reflect.TypeFor[log.Ack]().PkgPath() + "."}},
	{"command", []string{strings.TrimSuffix(reflect.TypeFor[cmdutil.App]().PkgPath(), "cmdutil")}},
	{"client", []string{"github.com/nats-io/nats.go"}},
}

// methodsOf returns the text that begins the name of each method of a type.
func methodsOf[T any]() string {
	t := reflect.TypeFor[T]()
	return t.PkgPath() + ".(*" + t.Name() + ")."
}

// otherOwner owns the samples of nothing else, such as the scheduler's.
const otherOwner = "other"

// ownerOf returns the owner of a stack of functions.
func ownerOf(functions []string) string {
	for _, o := range owners {
		for _, f := range functions {
			for _, prefix := range o.in {
				if strings.HasPrefix(f, prefix) {
					return o.name
				}
			}
		}
	}
	return otherOwner
}

// cpuProfile is a running profile of this process.
type cpuProfile struct{ bytes.Buffer }

func (p *cpuProfile) start() error { return pprof.StartCPUProfile(&p.Buffer) }

// split ends the profile, and returns the processor time of each owner for an event, in microseconds.
func (p *cpuProfile) split(events int) (map[string]float64, error) {
	pprof.StopCPUProfile()
	found, err := profile.Parse(&p.Buffer)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	return splitOf(found, events), nil
}

// splitOf sums up the samples of a profile by owner.
func splitOf(p *profile.Profile, events int) map[string]float64 {
	split := make(map[string]float64)
	for _, s := range p.Sample {
		var functions []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				functions = append(functions, line.Function.Name)
			}
		}
		split[ownerOf(functions)] += float64(s.Value[1]) / 1e3 / float64(events) // nanoseconds, after the number of samples
	}
	return split
}

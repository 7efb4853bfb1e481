package ingest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// interleaving is a log to which another producer appends to another session between the events of a series.
type interleaving struct {
	*log.Log
	isBusy func() bool // whether the producer appends now
}

func (l interleaving) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (all log.Ack, added int, err error) {
	for i, e := range evs {
		if l.isBusy() {
			other := l.Stamp(events.Event{Type: "com.example.x", Source: "urn:other"})
			if _, err := l.Append(ctx, events.Session("", "other"), log.Any, other); err != nil {
				return all, added, err
			}
		}
		ack, n, err := l.Log.AppendSeries(ctx, sub, expect, e)
		if added += n; err != nil {
			return all, added, err
		}
		if i == 0 {
			all.First = ack.First
		}
		if all.Last = ack.Last; expect != log.Any {
			expect = log.At(ack.Last)
		}
	}
	return all, added, nil
}

func TestInterleaved(t *testing.T) {
	t.Run("net G5 a rewritten file keeps the lines before the change, whatever was appended between them", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofClaude)
			defer os.RemoveAll(filepath.Dir(r.dir))
			full := r.open()
			defer full.Close()
			busy := rapid.SliceOfN(rapid.Bool(), 1, 5).Draw(rt, "other appends")
			_, stop := r.following(&refusing{Log: interleaving{full, func() bool {
				busy = append(busy[1:], busy[0])
				return busy[0]
			}}})
			defer stop()
			const name = "-p/s.jsonl"
			content, said := "", 0
			for range rapid.IntRange(1, 3).Draw(rt, "pieces") {
				n := rapid.IntRange(1, 4).Draw(rt, "lines")
				piece := prompts(said, n)
				said += n
				r.grow(name, piece)
				content += piece
				time.Sleep(65 * time.Second)
			}
			lines := slices.Collect(strings.Lines(content))
			kept := strings.Join(lines[:rapid.IntRange(0, len(lines)-1).Draw(rt, "kept")], "")
			content = kept + prompts(said, 2)
			path := filepath.Join(r.dir, filepath.FromSlash(name))
			r.write(name, content)
			must(rt, os.Chtimes(path, time.Now(), time.Now())) // the system's clock may stand still meanwhile
			time.Sleep(65 * time.Second)
			must(rt, stop())
			if len(r.problems) != 1 || r.problems[0].Offset != int64(len(kept)) {
				rt.Errorf("got the problems %v, want one: rewritten behind byte %d", r.problems, len(kept))
			}
			if given := r.given()[name]; given != content {
				rt.Errorf("the restored file is\n%q\nwant\n%q", given, content)
			}
		})
	})
}

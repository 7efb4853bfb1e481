// Package gentree generates folders in the layout of tally-evals from a seed: the same seed yields the same bytes. It
// writes as it generates, so that a folder may be larger than memory.
package gentree

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Options of a folder. The zero value works.
type Options struct {
	Seed      uint64
	Sessions  int  // default 3
	Turns     int  // mean number of turns of a conversation; default 10
	TurnBytes int  // approximate size of a turn; default 1000
	Odd       bool // also rare but legal content, and malformed pieces
}

func (o Options) withDefaults() Options {
	o.Sessions = cmp.Or(o.Sessions, 3)
	o.Turns = cmp.Or(o.Turns, 10)
	o.TurnBytes = cmp.Or(o.TurnBytes, 1000)
	return o
}

// Stats counts the generated files.
type Stats struct {
	Sessions, Turns, Files int
	Bytes                  int64
}

// Write generates a folder below dir. The result depends on the options alone. It skips names that the file system
// refuses.
func Write(dir string, o Options) (Stats, error) {
	o = o.withDefaults()
	g := &generator{dir: dir, o: o}
	for i := range o.Sessions {
		g.Rand = rand.New(rand.NewPCG(o.Seed, uint64(i)))
		if err := g.session(i); err != nil {
			return g.stats, fmt.Errorf("gentree: session %d: %w", i, err)
		}
	}
	if !o.Odd {
		return g.stats, nil
	}
	g.Rand = rand.New(rand.NewPCG(o.Seed, 1<<40))
	return g.stats, g.strayFiles()
}

type generator struct {
	*rand.Rand
	dir   string
	o     Options
	stats Stats
}

// once is true in one of n cases.
func (g *generator) once(n int) bool { return g.IntN(n) == 0 }

// session writes one conversation.
func (g *generator) session(i int) error {
	s := &session{generator: g, created: time.UnixMilli(1_700_000_000_000 + int64(i)*3_600_000 + g.Int64N(3_600_000)).UTC()}
	s.id = fmt.Sprintf("%08x-trj-%d-%s", g.Uint32(), i%3, s.word(9))
	if g.o.Odd && g.once(2) {
		s.id = s.oddID(i)
	}
	s.dir = filepath.Join(g.dir, "conversations", s.id)
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		if g.o.Odd {
			return nil // a name that this file system does not take
		}
		return err
	}
	g.stats.Sessions++
	s.turns = 1 + g.IntN(2*g.o.Turns-1)
	if g.o.Odd {
		return s.writeOdd()
	}
	return s.writePlain()
}

// file opens a file to be written through a buffer, and counts it.
func (g *generator) file(name string, write func(*output)) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		if g.o.Odd {
			return nil // the name exists, or the file system refuses it
		}
		return err
	}
	out := newOutput(f)
	write(out)
	g.stats.Files++
	g.stats.Bytes += out.size
	return out.close()
}

func (g *generator) strayFiles() error {
	for name, content := range map[string]string{
		"README.md":                "# Recorded sessions\n",
		"conversations/.DS_Store":  "\x00\x00\x00\x01Bud1\x00",
		"conversations/notes.txt":  "not a conversation\r\n",
		"tally.config.json":        "{\"storage\":{\"backend\":\"local\"}}",
		"conversations/empty.json": "",
	} {
		if err := g.file(filepath.Join(g.dir, filepath.FromSlash(name)), func(w *output) { w.text(content) }); err != nil {
			return err
		}
	}
	return nil
}
